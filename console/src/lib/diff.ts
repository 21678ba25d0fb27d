// SPDX-License-Identifier: Apache-2.0
// The lines of a text that shows differences, each with what it is.

export type DiffKind = 'added' | 'removed' | 'place' | 'same'

export interface DiffLine {
  kind: DiffKind
  text: string
}

export function parseDiff(text: string): DiffLine[] {
  return text.replace(/\n$/, '').split('\n').map((line) => ({ kind: findKind(line), text: line }))
}

function findKind(line: string): DiffKind {
  if (/^(@@|diff --git |index |\+\+\+ |--- )/.test(line)) return 'place'
  if (line.startsWith('+')) return 'added'
  if (line.startsWith('-')) return 'removed'
  return 'same'
}

/** Does a text have lines that add or remove something? */
export function hasChanges(text: string): boolean {
  return parseDiff(text).some((line) => line.kind === 'added' || line.kind === 'removed')
}
