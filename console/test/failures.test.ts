// SPDX-License-Identifier: Apache-2.0
import { Code, ConnectError } from '@connectrpc/connect'
import { beforeEach, describe, expect, test } from 'vitest'
import { FailedReads } from '../src/lib/failures'

const AWAY = new ConnectError('the bucket is silent', Code.Unavailable)
const LOST = new ConnectError('the log is lost', Code.DataLoss)
const DEAD = new TypeError('Failed to fetch')

let now: number
let failed: FailedReads

beforeEach(() => {
  now = 1000
  failed = new FailedReads(
    () => now,
    () => 1,
  )
})

describe('a block that could not be read', () => {
  test('may be read at once if it was never tried', () => {
    expect(failed.findWait(1)).toBe(0)
    expect(failed.error).toBeUndefined()
  })

  test.each([AWAY, DEAD, new ConnectError('late', Code.DeadlineExceeded)])('is tried again later and later: %s', (error) => {
    const waits: number[] = []
    for (let count = 0; count < 8; count += 1) {
      failed.note(1, error)
      waits.push(failed.findWait(1))
      now += failed.findWait(1)
      expect(failed.findWait(1)).toBe(0)
    }
    expect(waits).toEqual([1000, 2000, 4000, 8000, 15_000, 15_000, 15_000, 15_000])
  })

  test.each([LOST, new ConnectError('no such thing', Code.NotFound), new ConnectError('a bug', Code.Internal)])('is never tried again: %s', (error) => {
    failed.note(1, error)
    now += 1e9
    expect(failed.findWait(1)).toBe(Infinity)
    expect(failed.findWait(501)).toBe(0)
    expect(failed.error).toBe(error)
  })

  test('is tried at once when somebody asks for it', () => {
    failed.note(1, LOST)
    failed.clear()
    expect(failed.findWait(1)).toBe(0)
    expect(failed.error).toBeUndefined()
  })

  test('is forgotten when another one can be read, unless it is lost', () => {
    failed.note(1, LOST)
    failed.note(501, AWAY)
    failed.note(1001, AWAY)
    expect(failed.error).toBe(AWAY)
    failed.noteSuccess(1001)
    expect([failed.findWait(1), failed.findWait(501), failed.findWait(1001)]).toEqual([Infinity, 0, 0])
    expect(failed.error).toBe(LOST)
  })
})
