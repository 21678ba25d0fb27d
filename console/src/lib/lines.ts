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

  /** The first line of each block that is not there, among the lines that are looked at. */
  findMissing(first: number, last: number): number[] {
    const found: number[] = []
    for (let number = first; number <= Math.min(last, this.total); number += 1) {
      if (this.get(number)) continue
      found.push(number)
      number = blockEnd(number)
    }
    return found
  }

  /** Drops what is far from the lines that are looked at, so that a long log does not fill the memory. */
  forgetFarFrom(first: number): void {
    if (this.blocks.size <= MOST_BLOCKS) return
    const here = Math.floor((first - 1) / BLOCK)
    const far = [...this.blocks.keys()].sort((one, other) => Math.abs(other - here) - Math.abs(one - here))
    for (const key of far.slice(0, this.blocks.size - MOST_BLOCKS)) this.blocks.delete(key)
  }
}

/** The first line of the block of a line. */
export function blockStart(line: number): number {
  return Math.floor((line - 1) / BLOCK) * BLOCK + 1
}

/** The last line of the block of a line. */
export function blockEnd(line: number): number {
  return blockStart(line) + BLOCK - 1
}
