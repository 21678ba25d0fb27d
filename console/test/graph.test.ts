// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from 'vitest'
import { fitCards, layOut } from '../src/lib/graph'

describe('layOut', () => {
  test('puts a chain into a row', () => {
    const { columns, edges } = layOut([
      { id: 'a', requires: [] },
      { id: 'b', requires: ['a'] },
      { id: 'c', requires: ['b'] },
    ])
    expect(columns).toEqual([['a'], ['b'], ['c']])
    expect(edges).toEqual([
      { from: 'a', to: 'b' },
      { from: 'b', to: 'c' },
    ])
  })
  test('puts what may run side by side into one column', () => {
    const { columns } = layOut([
      { id: 'a', requires: [] },
      { id: 'b', requires: ['a'] },
      { id: 'c', requires: ['a'] },
      { id: 'd', requires: ['b', 'c'] },
    ])
    expect(columns).toEqual([['a'], ['b', 'c'], ['d']])
  })
  test('does not hang on a circle, nor on what is unknown', () => {
    const { columns, edges } = layOut([
      { id: 'a', requires: ['b'] },
      { id: 'b', requires: ['a'] },
      { id: 'c', requires: ['nothing'] },
    ])
    expect(columns.flat().sort()).toEqual(['a', 'b', 'c'])
    expect(edges.every(({ from, to }) => from !== to)).toBe(true)
  })
  test('of nothing is nothing', () => {
    expect(layOut([])).toEqual({ columns: [], edges: [] })
  })
})

test('cards become narrower so that four stand side by side, and scroll where they cannot', () => {
  expect(fitCards(4, 1200)).toEqual({ width: 220, gap: 36 })
  const { width, gap } = fitCards(4, 980)
  expect(width).toBeLessThanOrEqual(220)
  expect(4 * width + 3 * gap).toBeLessThanOrEqual(980)
  expect(fitCards(4, 340)).toEqual({ width: 220, gap: 36 })
  expect(fitCards(0, 340)).toEqual({ width: 220, gap: 36 })
})
