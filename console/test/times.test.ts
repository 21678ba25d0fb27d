// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from 'vitest'
import { formatAgo, formatDuration, formatExactly, toSeconds } from '../src/lib/times'

const NOW = 1_800_000_000

describe('formatAgo', () => {
  test.each([
    [0, 'never'],
    [NOW, 'just now'],
    [NOW - 12, '12 s ago'],
    [NOW - 60, '1 min ago'],
    [NOW - 7200, '2 h ago'],
    [NOW - 86_400, '1 day ago'],
    [NOW - 3 * 86_400, '3 days ago'],
    [NOW + 600, 'in 10 min'],
  ])('%i is %s', (seconds, text) => expect(formatAgo(seconds, NOW)).toBe(text))
  test('says the date when it is long ago', () => {
    expect(formatAgo(NOW - 400 * 86_400, NOW)).toMatch(/^\d{1,2} \w{3,4} 20\d\d$/)
  })
})

describe('formatDuration', () => {
  test.each([
    [-3, '0 s'],
    [0.4, '0 s'],
    [59, '59 s'],
    [65, '1 min 05 s'],
    [7500, '2 h 05 min'],
    [90_000, '1 d 1 h'],
  ])('%d is %s', (seconds, text) => expect(formatDuration(seconds)).toBe(text))
})

test('the exact time has its zone', () => {
  expect(formatExactly(NOW)).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d$/)
})

test('a time is read from a number and from a timestamp', () => {
  expect(toSeconds(5n)).toBe(5)
  expect(toSeconds({ seconds: 5n, nanos: 500_000_000 })).toBe(5.5)
  expect(toSeconds(undefined)).toBe(0)
})
