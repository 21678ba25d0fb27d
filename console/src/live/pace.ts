// SPDX-License-Identifier: Apache-2.0
// How long to wait before the next try: longer each time, with jitter, so that many browsers do not come back at once.

const FIRST_MS = 300
const LONGEST_MS = 8_000

export class Pace {
  private tries = 0

  constructor(
    private readonly random: () => number = Math.random,
    private readonly firstMs = FIRST_MS,
    private readonly longestMs = LONGEST_MS,
  ) {}

  next(): number {
    const whole = Math.min(this.longestMs, this.firstMs * 2 ** this.tries)
    this.tries += 1
    return whole / 2 + (whole / 2) * this.random()
  }

  reset(): void {
    this.tries = 0
  }
}
