// SPDX-License-Identifier: Apache-2.0
// What pages and the holder of the stream say to each other. Plain data: it is cloned between worker and page.

export interface LogRef {
  deploymentId: string
  stageId: string
  attempt: number
}

export interface LogLine {
  /** From 1 on; it never changes. */
  number: number
  text: string
  severity: number
  /** Unix seconds. */
  at: number
}

export interface LogLines {
  firstLine: number
  lines: LogLine[]
  total: number
  completed: boolean
  refusal: string
}

export interface ChangedThing {
  kind: number
  id: string
}

export type Connection = 'connecting' | 'online' | 'offline' | 'signed-out'

/** From a page to the holder. */
export type PageMessage =
  | { type: 'hello' }
  | { type: 'bye' }
  | { type: 'retry' }
  | { type: 'follow'; log: LogRef; firstLine: number }
  | { type: 'unfollow'; log: LogRef }

/** From the holder to a page. */
export type HolderMessage =
  | { type: 'connection'; connection: Connection }
  | { type: 'changes'; changes: ChangedThing[] }
  | { type: 'read-again' }
  | { type: 'lines'; log: LogRef; lines: LogLines }

export function formatLogRef(log: LogRef): string {
  return `${log.deploymentId}/${log.stageId}/${log.attempt}`
}
