// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from 'vitest'
import { parseAnsi, stripAnsi } from '../src/lib/ansi'

describe('parseAnsi', () => {
  test('leaves plain text alone', () => {
    expect(parseAnsi('hello')).toEqual([{ text: 'hello', classes: '' }])
  })
  test('colours until the reset', () => {
    expect(parseAnsi('a\u001b[31mb\u001b[0mc')).toEqual([
      { text: 'a', classes: '' },
      { text: 'b', classes: 'fg-1' },
      { text: 'c', classes: '' },
    ])
  })
  test('joins several codes of one sequence', () => {
    expect(parseAnsi('\u001b[1;4;92;44mx')).toEqual([{ text: 'x', classes: 'fg-10 bg-4 bold underline' }])
  })
  test('brings colours beyond the sixteen to the nearest', () => {
    expect(parseAnsi('\u001b[38;5;196mx')[0]?.classes).toBe('fg-9')
    expect(parseAnsi('\u001b[38;2;10;10;10mx')[0]?.classes).toBe('fg-0')
    expect(parseAnsi('\u001b[48;2;0;0;255mx')[0]?.classes).toBe('bg-12')
  })
  test('swaps the colours of reverse', () => {
    expect(parseAnsi('\u001b[7mx')[0]?.classes).toBe('fg-page bg-text')
  })
  test('keeps markup as text', () => {
    expect(parseAnsi('<img src=x onerror=alert(1)>')).toEqual([{ text: '<img src=x onerror=alert(1)>', classes: '' }])
  })
  test('drops titles, links, cursor moves and control characters', () => {
    expect(stripAnsi('\u001b]0;title\u0007a\u001b[2Kb\u001b[1Ac\u0008d\u001b]8;;http://example.com\u001b\\e')).toBe('abcde')
  })
  test('shows of a progress bar what it wrote last', () => {
    expect(stripAnsi('10 %\r50 %\r100 %\r\n')).toBe('100 %')
  })
  test('never makes a class of what a line says', () => {
    for (const piece of parseAnsi('\u001b[31"x;99999;-1mx\u001b[38;9;9mz')) expect(piece.classes).toMatch(/^[a-z0-9 -]*$/)
  })
})
