// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from 'vitest'
import { layOut } from '../src/lib/graph'

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
