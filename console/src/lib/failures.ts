// SPDX-License-Identifier: Apache-2.0
// Which blocks of a log could not be read, and when each may be asked for again: later each time, or never.
import { mayPass } from '../api/errors'
import { Pace } from '../live/pace'

const FIRST_MS = 1_000
const LONGEST_MS = 15_000

interface Failure {
  error: unknown
  pace: Pace
  /** Milliseconds of the clock; infinite for an error that is final. */
  retryAt: number
}

export class FailedReads {
  private readonly failures = new Map<number, Failure>()

  constructor(
    private readonly now: () => number = Date.now,
    private readonly random: () => number = Math.random,
  ) {}

  note(block: number, error: unknown): void {
    const pace = this.failures.get(block)?.pace ?? new Pace(this.random, FIRST_MS, LONGEST_MS)
    this.failures.delete(block)
    this.failures.set(block, { error, pace, retryAt: mayPass(error) ? this.now() + pace.next() : Infinity })
  }

  /** Forgets what is mended by a read that succeeded: the server answers, so other blocks may be tried as well. */
  noteSuccess(block: number): void {
    this.failures.delete(block)
    for (const [other, { error }] of this.failures) if (mayPass(error)) this.failures.delete(other)
  }

  /** Milliseconds until a block may be read: 0 for now, infinite for never. */
  findWait(block: number): number {
    const failure = this.failures.get(block)
    return failure ? Math.max(0, failure.retryAt - this.now()) : 0
  }

  /** Why something of the log cannot be shown: the newest failure, if there is any. */
  get error(): unknown {
    return [...this.failures.values()].at(-1)?.error
  }

  /** Somebody wants all of it tried again, now. */
  clear(): void {
    this.failures.clear()
  }
}
