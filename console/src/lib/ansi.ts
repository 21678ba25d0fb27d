// SPDX-License-Identifier: Apache-2.0
// Colours of terminals as plain data: what a log line says stays text, and everything else of its codes is dropped.

export interface Piece {
  text: string
  /** Names of classes: `fg-1`, `bg-4`, `bold`, … Colours beyond the sixteen are brought to the nearest of them. */
  classes: string
}

interface Style {
  foreground: number | undefined
  background: number | undefined
  bold: boolean
  dim: boolean
  italic: boolean
  underline: boolean
  reverse: boolean
}

const PLAIN: Style = {
  foreground: undefined,
  background: undefined,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  reverse: false,
}

// CSI sequences, OSC sequences (titles, links), two-character escapes, and other control characters.
// eslint-disable-next-line no-control-regex
const CODES = /\u001b\[([0-9;:?<=>!]*)[ -/]*([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|\u001b[@-Z\\-_ -/]?[0-~]?|[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f\u0080-\u009f]/g

/** Splits a line into pieces of one style each. */
export function parseAnsi(line: string): Piece[] {
  const pieces: Piece[] = []
  let style = PLAIN
  let position = 0
  const add = (text: string): void => {
    if (!text) return
    const classes = formatClasses(style)
    const last = pieces.at(-1)
    if (last && last.classes === classes) last.text += text
    else pieces.push({ text, classes })
  }
  for (const match of keepLastOverwrite(line).matchAll(CODES)) {
    const source = match.input
    add(source.slice(position, match.index))
    position = match.index + match[0].length
    if (match[2] === 'm') style = applyCodes(style, match[1] ?? '')
  }
  add(keepLastOverwrite(line).slice(position))
  return pieces
}

/** The line without any code, for search and copy. */
export function stripAnsi(line: string): string {
  return keepLastOverwrite(line).replace(CODES, '')
}

/** A progress bar writes over its own line with carriage returns: the last one is what a terminal shows. */
function keepLastOverwrite(line: string): string {
  const trimmed = line.replace(/[\r\n]+$/, '')
  const at = trimmed.lastIndexOf('\r')
  return at < 0 ? trimmed : trimmed.slice(at + 1)
}

function formatClasses(style: Style): string {
  const names: string[] = []
  const [foreground, background] = style.reverse
    ? [style.background ?? 'page', style.foreground ?? 'text']
    : [style.foreground, style.background]
  if (foreground !== undefined) names.push(`fg-${foreground}`)
  if (background !== undefined) names.push(`bg-${background}`)
  for (const name of ['bold', 'dim', 'italic', 'underline'] as const) if (style[name]) names.push(name)
  return names.join(' ')
}

function applyCodes(before: Style, text: string): Style {
  const codes = text.split(/[;:]/).map((word) => (word === '' ? 0 : Number(word)))
  let style = before
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index] ?? 0
    if (code === 38 || code === 48) {
      const [colour, used] = readColour(codes, index + 1)
      index += used
      if (colour !== undefined) style = { ...style, [code === 38 ? 'foreground' : 'background']: colour }
    } else style = applyCode(style, code)
  }
  return style
}

function applyCode(style: Style, code: number): Style {
  if (code === 0) return PLAIN
  if (code === 1) return { ...style, bold: true }
  if (code === 2) return { ...style, dim: true }
  if (code === 3) return { ...style, italic: true }
  if (code === 4) return { ...style, underline: true }
  if (code === 7) return { ...style, reverse: true }
  if (code === 22) return { ...style, bold: false, dim: false }
  if (code === 23) return { ...style, italic: false }
  if (code === 24) return { ...style, underline: false }
  if (code === 27) return { ...style, reverse: false }
  if (code >= 30 && code <= 37) return { ...style, foreground: code - 30 }
  if (code === 39) return { ...style, foreground: undefined }
  if (code >= 40 && code <= 47) return { ...style, background: code - 40 }
  if (code === 49) return { ...style, background: undefined }
  if (code >= 90 && code <= 97) return { ...style, foreground: code - 82 }
  if (code >= 100 && code <= 107) return { ...style, background: code - 92 }
  return style
}

/** Reads what follows 38 or 48: a colour of 256, or red, green and blue. Returns it and how many codes it took. */
function readColour(codes: number[], at: number): [number | undefined, number] {
  if (codes[at] === 5) return [reduce256(codes[at + 1] ?? 0), 2]
  if (codes[at] === 2) return [reduceRgb(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), 4]
  return [undefined, 0]
}

function reduce256(code: number): number {
  if (code < 16) return Math.max(0, code)
  if (code >= 232) {
    const level = (code - 232) * 10 + 8
    return reduceRgb(level, level, level)
  }
  const cube = code - 16
  const level = (part: number): number => (part === 0 ? 0 : part * 40 + 55)
  return reduceRgb(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6))
}

function reduceRgb(red: number, green: number, blue: number): number {
  const high = Math.max(red, green, blue)
  if (high < 50) return 0
  const isGrey = high - Math.min(red, green, blue) < 40
  if (isGrey) return high > 200 ? 15 : high > 120 ? 7 : 8
  const bit = (part: number): number => (part > high / 2 ? 1 : 0)
  const base = bit(red) + 2 * bit(green) + 4 * bit(blue)
  return high > 190 ? base + 8 : base
}
