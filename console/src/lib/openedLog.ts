// SPDX-License-Identifier: Apache-2.0
// The lines of a log that a page has open: those in sight are read, new ones come by themselves, and what cannot be read
// is tried again when that may help.
import { Code, ConnectError } from '@connectrpc/connect'
import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from 'react'
import { logs } from '../api/clients'
import { followLog } from '../live/live'
import type { LogLine, LogRef } from '../live/messages'
import { FailedReads } from './failures'
import { BLOCK, blockEnd, blockStart, LineStore } from './lines'

export interface OpenedLog {
  store: LineStore
  /** Has the server said how long the log is? */
  isKnown: boolean
  /** Why something of it cannot be shown; undefined when nothing is wrong. */
  error: unknown
  /** Why it is not followed, or not any more. */
  refusal: string
  /** Changes with everything that is read. */
  version: number
  /** Reads what is missing of these lines; returns what stops that. */
  readInSight: (first: number, last: number) => (() => void) | undefined
  /** Somebody wants it tried again, now. */
  readAgain: () => void
}

/** Opens a log at a line, or at its end, which is 0. Another log needs another component. */
export function useOpenedLog(log: LogRef, wantedLine: number): OpenedLog {
  const store = useMemo(() => new LineStore(), [])
  const failed = useMemo(() => new FailedReads(), [])
  const [version, redraw] = useReducer((count: number) => count + 1, 0)
  const [refusal, setRefusal] = useState('')
  const [hasTried, setHasTried] = useState(false)
  const [isKnown, setKnown] = useState(false)
  const reading = useRef(new Set<number>())
  const firstRead = useRef(wantedLine > 0 ? blockStart(wantedLine) : 0).current

  const read = useCallback(
    async (line: number) => {
      const block = findBlock(line)
      if (reading.current.has(block)) return
      reading.current.add(block)
      try {
        // To the end of its block. The answer may have fewer lines, if they are long: then it goes on from there.
        const answer = await logs.readStageLog({
          deploymentId: log.deploymentId,
          stageId: log.stageId,
          retriedCount: log.attempt,
          firstLine: BigInt(line),
          count: line > 0 ? blockEnd(line) - line + 1 : BLOCK,
        })
        const first = Number(answer.firstLine)
        store.add(answer.blocks.map((each, index) => toLine(first + index, each)))
        store.total = Math.max(store.total, Number(answer.totalLines))
        store.isCompleted = answer.completed
        setKnown(true)
        // Of a log that was deleted meanwhile: asking again and again would not bring them.
        if (line > 0 && line <= store.total && !store.get(line)) throw new ConnectError('These lines are not there any more.', Code.NotFound)
        failed.noteSuccess(block)
      } catch (failure) {
        failed.note(block, failure)
      } finally {
        reading.current.delete(block)
        setHasTried(true)
        redraw()
      }
    },
    [log.deploymentId, log.stageId, log.attempt, store, failed],
  )

  // Until it is known how long the log is, there is nothing in sight that could be missing.
  useEffect(() => {
    if (isKnown) return
    return tryWhenDue([firstRead], failed, read, redraw)
  }, [isKnown, firstRead, failed, read, version])

  // What is written from here on. Where the log cannot be read, 0 still tells how long it is, and what is added.
  useEffect(() => {
    if (!hasTried) return
    return followLog(log, isKnown ? store.total + 1 : 0, (news) => {
      setRefusal(news.refusal)
      if (!news.refusal) {
        store.add(news.lines)
        store.total = Math.max(store.total, news.total)
        if (news.completed) store.isCompleted = true
        if (store.total === 0) failed.clear() // there is nothing that could not be read
        setKnown(true)
      }
      redraw()
    })
    // Only another log begins anew.
  }, [hasTried])

  const readInSight = useCallback((first: number, last: number) => tryWhenDue(store.findMissing(first, last), failed, read, redraw), [store, failed, read])
  const readAgain = useCallback(() => {
    failed.clear()
    redraw()
  }, [failed])
  return { store, isKnown, error: failed.error, refusal, version, readInSight, readAgain }
}

/** Reads what may be read now, and redraws when it is time to read the rest; returns what stops that. */
function tryWhenDue(lines: readonly number[], failed: FailedReads, read: (line: number) => Promise<void>, redraw: () => void): (() => void) | undefined {
  let soonest = Infinity
  for (const line of lines) {
    const wait = failed.findWait(findBlock(line))
    if (wait === 0) void read(line)
    else soonest = Math.min(soonest, wait)
  }
  if (soonest === Infinity) return undefined
  const timer = setTimeout(redraw, soonest)
  return () => clearTimeout(timer)
}

/** Under which number a read is remembered: 0 for that of the log's end. */
function findBlock(line: number): number {
  return line > 0 ? blockStart(line) : 0
}

function toLine(number: number, block: { log: string; severity: number; createdAt: bigint }): LogLine {
  return { number, text: block.log, severity: block.severity, at: Number(block.createdAt) }
}
