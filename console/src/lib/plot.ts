// SPDX-License-Identifier: Apache-2.0
// Where numbers are in a picture: finite places whatever the numbers are.

export interface Scale {
  low: number
  high: number
  /** The place of a value; what is beyond an end is at that end. */
  place: (value: number) => number
}

/** A scale over all finite values, with a little room at both ends; `from` is the place of the lowest. */
export function makeScale(values: readonly number[], from: number, to: number): Scale {
  let low = Infinity
  let high = -Infinity
  for (const value of values) {
    if (!Number.isFinite(value)) continue
    low = Math.min(low, value)
    high = Math.max(high, value)
  }
  if (low > high) [low, high] = [0, 1]
  const spread = high - low || Math.abs(high) || 1
  // What is never negative does not seem so, and what is near zero is seen to be.
  const bottom = low >= 0 && low < spread / 2 ? 0 : low - spread * 0.08
  return makeLinear(bottom, high + spread * 0.08, from, to)
}

export function makeLinear(low: number, high: number, from: number, to: number): Scale {
  function place(value: number): number {
    const share = high > low ? (value - low) / (high - low) : 0.5
    return from + Math.min(1, Math.max(0, share)) * (to - from)
  }
  return { low, high, place }
}

const SMALLEST_SHARE = 0.001

/** Shares between 0 and 1, the small ones far apart. */
export function makeShareScale(from: number, to: number): Scale {
  const steps = makeLinear(Math.log10(SMALLEST_SHARE), 0, from, to)
  return { low: 0, high: 1, place: (share) => steps.place(Math.log10(Math.max(share, SMALLEST_SHARE))) }
}
