// SPDX-License-Identifier: Apache-2.0
// Where the stages of a pipeline stand in its picture.

export interface Node {
  id: string
  requires: readonly string[]
}

export interface Edge {
  from: string
  to: string
}

export interface Layout {
  /** Columns from left to right; each has the ids from top to bottom. */
  columns: string[][]
  edges: Edge[]
}

/** A node stands right of everything that it requires. What is unknown or goes in a circle is not followed. */
export function layOut(nodes: readonly Node[]): Layout {
  const known = new Map(nodes.map((node) => [node.id, node]))
  const depths = new Map<string, number>()
  const open = new Set<string>()
  const find = (id: string): number => {
    const found = depths.get(id)
    if (found !== undefined) return found
    if (open.has(id)) return -1
    open.add(id)
    const before = (known.get(id)?.requires ?? []).filter((each) => known.has(each)).map(find)
    open.delete(id)
    const depth = Math.max(-1, ...before) + 1
    depths.set(id, depth)
    return depth
  }
  const columns: string[][] = []
  for (const node of nodes) {
    const depth = find(node.id)
    ;(columns[depth] ??= []).push(node.id)
  }
  const edges = nodes.flatMap((node) =>
    node.requires
      .filter((from) => known.has(from) && (depths.get(from) ?? 0) < (depths.get(node.id) ?? 0))
      .map((from) => ({ from, to: node.id })),
  )
  return { columns: columns.filter((column) => column !== undefined), edges }
}

export interface CardSize {
  width: number
  gap: number
}

const WIDEST: CardSize = { width: 220, gap: 36 }
const NARROWEST: CardSize = { width: 148, gap: 18 }

/** How wide cards are, so that all columns are in sight; where that cannot be, they are wide and the picture scrolls. */
export function fitCards(columns: number, room: number): CardSize {
  const takes = (size: CardSize): number => columns * (size.width + size.gap) - size.gap
  if (columns === 0 || takes(WIDEST) <= room || takes(NARROWEST) > room) return WIDEST
  const gap = NARROWEST.gap
  return { width: Math.min(WIDEST.width, Math.floor((room - (columns - 1) * gap) / columns)), gap }
}
