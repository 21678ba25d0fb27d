// SPDX-License-Identifier: Apache-2.0
// The part of a log that the page has: pages of lines by number, the rest is read when it is looked at.
import type { LogLine } from '../live/messages'

/** Lines are read and kept in blocks of this size. */
export const BLOCK = 500
const MOST_BLOCKS = 60

export class LineStore {
  total = 0
  isCompleted = false
  private readonly blocks = new Map<number, (LogLine | undefined)[]>()

  /** Adds lines whose numbers follow each other. */
  add(lines: readonly LogLine[]): void {
    for (const line of lines) {
      const at = Math.floor((line.number - 1) / BLOCK)
      let block = this.blocks.get(at)
      if (!block) {
        block = []
        this.blocks.set(at, block)
      }
      block[(line.number - 1) % BLOCK] = line
      this.total = Math.max(this.total, line.number)
    }
  }

  get(number: number): LogLine | undefined {
    return this.blocks.get(Math.floor((number - 1) / BLOCK))?.[(number - 1) % BLOCK]
  }

  /** The first line of a block that is not there, among the lines that are looked at; 0 when all are there. */
  findMissing(first: number, last: number): number {
    for (let number = first; number <= Math.min(last, this.total); number += 1) {
      if (!this.get(number)) return number
    }
    return 0
  }

  /** Drops what is far from the lines that are looked at, so that a long log does not fill the memory. */
  forgetFarFrom(first: number): void {
    if (this.blocks.size <= MOST_BLOCKS) return
    const here = Math.floor((first - 1) / BLOCK)
    const far = [...this.blocks.keys()].sort((one, other) => Math.abs(other - here) - Math.abs(one - here))
    for (const key of far.slice(0, this.blocks.size - MOST_BLOCKS)) this.blocks.delete(key)
  }
}
