// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from 'vitest'
import { makeScale, makeShareScale } from '../src/lib/plot'
import { type Analysis, countWarnings, describeExpected, describeSample, findMedian, formatNumber, readAnalyses, showAnalysis } from '../src/model/analysis'
import { hasAnalysis } from '../src/model/stages'

const RECORD = {
  id: 'metrics-0',
  kind: 'metric',
  strategy: 'THRESHOLD',
  query: 'up',
  expected: { max: 0.5 },
  intervalSeconds: 60,
  failureLimit: 1,
  looks: 3,
  done: 2,
  evaluated: 2,
  allFailures: 1,
  evaluations: [
    { at: 1704196860, verdict: 'EXPECTED', text: 'fine', count: 2, values: [0.1, 0.2] },
    { at: 1704196920, verdict: 'UNEXPECTED', text: '0.9 is out of range', count: 1, values: [0.9], warning: 'few' },
  ],
}

function read(more: object = {}): Analysis {
  const found = readAnalyses({ 'analysis/metrics-0': JSON.stringify({ ...RECORD, ...more }) }).analyses[0]
  if (!found) throw new Error('it cannot be read')
  return found
}

describe('readAnalyses', () => {
  test('a record is read with its evaluations, in the order of their numbers', () => {
    const metadata = { 'analysis/metrics-10': JSON.stringify(RECORD), 'analysis/metrics-2': JSON.stringify(RECORD), startTime: '1' }
    expect(hasAnalysis(metadata)).toBe(true)
    expect(hasAnalysis({ startTime: '1' })).toBe(false)
    expect(readAnalyses(metadata).analyses.map((each) => each.id)).toEqual(['metrics-2', 'metrics-10'])
    expect(read().evaluations.map((each) => each.sample)).toEqual([
      { values: [0.1, 0.2], count: 2 },
      { values: [0.9], count: 1 },
    ])
  })
  test.each(['', '{', '[]', 'null', '"x"', '1', 'x'.repeat(70_000)])('what cannot be read is named: %#', (text) => {
    expect(readAnalyses({ 'analysis/a': text })).toEqual({ analyses: [], unreadable: ['analysis/a'] })
  })
  test('what is not as it should be is left out', () => {
    const hostile = {
      query: { toString: 1 },
      name: `a\u202eb\u0000${'x'.repeat(5000)}`,
      expected: { min: 'Infinity', max: '<script>' },
      looks: -5,
      evaluations: [null, 7, { at: 'now', verdict: 'EXPECTED' }, { at: 1, verdict: '__proto__' }, { at: 1e300, verdict: 'EXPECTED' }, { at: 5, verdict: 'ERROR', values: ['1', null, 'Infinity', 1e308, {}, 0.5], pValue: 7 }],
    }
    const found = read(hostile)
    expect(found.query).toBe('')
    expect(found.name.length).toBe(1000)
    expect(found.name.startsWith('a\ufffdb\ufffdx')).toBe(true)
    expect(found.expected).toEqual({ min: undefined, max: undefined })
    expect(found.looks).toBe(0)
    expect(found.evaluations).toHaveLength(1)
    expect(found.evaluations[0]?.sample.values).toEqual([Infinity, Infinity, 0.5])
    expect(found.evaluations[0]?.pValue).toBeUndefined()
  })
  test('what failed comes first, then metrics before checks', () => {
    const check = JSON.stringify({ ...RECORD, kind: 'http' })
    const failed = JSON.stringify({ ...RECORD, allFailures: 2 })
    const metadata = { 'analysis/http-0': check, 'analysis/metrics-0': JSON.stringify(RECORD), 'analysis/metrics-1': failed }
    expect(readAnalyses(metadata).analyses.map((each) => each.id)).toEqual(['metrics-1', 'metrics-0', 'http-0'])
  })
  test('there is an end to what is read', () => {
    const many = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`analysis/${index}`, JSON.stringify(RECORD)]))
    expect(readAnalyses(many).analyses).toHaveLength(50)
    const long = read({ evaluations: Array.from({ length: 1500 }, (_, at) => ({ at, verdict: 'EXPECTED' })) })
    expect(long.evaluations).toHaveLength(500)
    expect(long.evaluations.at(-1)?.at).toBe(1499)
  })
})

describe('what it came to', () => {
  test('the verdict follows the failures that count', () => {
    expect(showAnalysis(read(), true).word).toBe('In progress')
    expect(showAnalysis(read(), false).word).toBe('Not finished')
    expect(showAnalysis(read({ done: 3 }), true).word).toBe('Passed')
    expect(showAnalysis(read({ allFailures: 2 }), true).word).toBe('Failed')
    expect(showAnalysis(read({ allFailures: 2, failureWindowSeconds: 60, failures: [1] }), true).word).toBe('In progress')
    expect(showAnalysis(read({ ended: 'there is no earlier analysis' }), true).word).toBe('Nothing to compare')
  })
  test('what was expected, in words', () => {
    expect(describeExpected(read())).toBe('at most 0.5')
    expect(describeExpected(read({ expected: { min: 0, max: 2 } }))).toBe('at least 0 and at most 2')
    expect(describeExpected(read({ expected: {}, strategy: 'CANARY_BASELINE', deviation: 'HIGH' }))).toBe('not higher than baseline')
    expect(describeExpected(read({ expected: {}, strategy: 'PREVIOUS' }))).toBe('no different from previous deployment')
  })
  test('a warning is told once', () => {
    expect(countWarnings(read())).toEqual([['few', 1]])
  })
})

describe('numbers', () => {
  test('few digits', () => {
    expect([0, 0.1, 1234.5678, 1e-9, 2.5e12, Infinity, -Infinity].map((value) => formatNumber(value))).toEqual(['0', '0.1', '1235', '1.00e-9', '2.50e12', '∞', '-∞'])
  })
  test('a sample in words', () => {
    expect(describeSample({ values: [], count: 0 })).toBe('none')
    expect(describeSample({ values: [3], count: 1 })).toBe('3')
    expect(describeSample({ values: [1, 2, 3, Infinity], count: 40 })).toBe('2.5 (1 to ∞, 40 values)')
    expect(findMedian([Infinity, Infinity])).toBe(Infinity)
  })
  test('every value has a place in the picture', () => {
    const cases = [[], [Infinity], [-1e300, 1e300], [5, 5], [0, 0], [Number.MIN_VALUE], [1, Infinity, -Infinity]]
    for (const values of cases) {
      const scale = makeScale(values, 100, 0)
      for (const value of [...values, scale.low, scale.high]) {
        expect(scale.place(value)).toBeGreaterThanOrEqual(0)
        expect(scale.place(value)).toBeLessThanOrEqual(100)
      }
    }
    expect(makeScale([0, 10], 100, 0).low).toBe(0)
    expect(makeShareScale(100, 0).place(0)).toBe(100)
    expect(makeShareScale(100, 0).place(1)).toBe(0)
  })
})
