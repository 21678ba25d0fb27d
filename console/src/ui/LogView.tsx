// SPDX-License-Identifier: Apache-2.0
// The log of a stage: as it is written, with colours, search, a link to each line. Only the lines in sight are on the
// page, whatever the length of the log.
import { memo, type ReactNode, useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react'
import { logs } from '../api/clients'
import { LogSeverity } from '../api/gen/pipecd_wire/model/logblock_pb'
import { parseAnsi } from '../lib/ansi'
import { useOpenedLog } from '../lib/openedLog'
import { navigate, useHash } from '../lib/router'
import { formatClock, formatExactly } from '../lib/times'
import { formatLogRef, type LogLine, type LogRef } from '../live/messages'
import { copyText, ErrorBox, Status } from './basics'
import { toast } from './dialogs'
import { Icon } from './icons'

const ROW = 20
const SHORT = 12 * ROW
const OVERSCAN = 30
/** Browsers cannot scroll an element of any height: beyond this, the scroll bar stands for several lines a pixel. */
const HIGHEST = 8_000_000

interface Props {
  log: LogRef
  /** Does the stage still run? */
  isOpen: boolean
  stageName: string
  actions?: ReactNode
}

export function LogView({ log, isOpen, stageName, actions }: Props): ReactNode {
  const key = formatLogRef(log)
  return <Log key={key} log={log} isOpen={isOpen} stageName={stageName} actions={actions} />
}

function Log({ log, isOpen, stageName, actions }: Props): ReactNode {
  const wantedLine = readLine(useHash())
  const { store, isKnown, error, refusal, version, readInSight, readAgain } = useOpenedLog(log, wantedLine)
  const [isFollowing, setFollowing] = useState(wantedLine === 0)
  const [showsTimes, setShowsTimes] = useState(false)
  const search = useLogSearch(log)
  const box = useRef<HTMLDivElement>(null)
  const [range, setRange] = useState({ top: 0, height: 400 })

  const whole = store.total * ROW
  const height = Math.min(whole, HIGHEST)
  const ratio = whole > HIGHEST ? (whole - range.height) / (HIGHEST - range.height) : 1
  const firstSeen = Math.max(1, Math.floor((range.top * ratio) / ROW) + 1)
  const lastSeen = Math.min(store.total, firstSeen + Math.ceil(range.height / ROW))
  const first = Math.max(1, firstSeen - OVERSCAN)
  const last = Math.min(store.total, lastSeen + OVERSCAN)

  useEffect(() => {
    store.forgetFarFrom(first)
    return readInSight(first, last)
  }, [first, last, store, readInSight, version])

  const scrollToLine = useCallback(
    (number: number) => {
      const element = box.current
      if (!element) return
      const wanted = Math.max(0, (number - 1) * ROW - element.clientHeight / 2)
      element.scrollTop = wanted / ratio
    },
    [ratio],
  )
  useLayoutEffect(() => {
    const element = box.current
    if (isFollowing && element) element.scrollTop = element.scrollHeight
  }, [isFollowing, store.total, isKnown])
  const hasJumped = useRef(0)
  useEffect(() => {
    if (!isKnown || wantedLine === 0 || hasJumped.current === wantedLine) return
    hasJumped.current = wantedLine
    setFollowing(false)
    scrollToLine(wantedLine)
  }, [isKnown, wantedLine, scrollToLine])
  useEffect(() => {
    if (search.current) {
      setFollowing(false)
      scrollToLine(search.current)
    }
  }, [search.current, scrollToLine])
  useEffect(() => {
    const element = box.current
    if (!element) return
    const watch = new ResizeObserver(() => setRange((before) => ({ ...before, height: element.clientHeight })))
    watch.observe(element)
    return () => watch.disconnect()
  }, [])

  function handleScroll(): void {
    const element = box.current
    if (!element) return
    setRange({ top: element.scrollTop, height: element.clientHeight })
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < ROW * 2
    if (isFollowing && !isAtEnd && element.scrollTop < range.top) setFollowing(false)
    if (!isFollowing && isAtEnd && isOpen && element.scrollTop > range.top && wantedLine === 0) setFollowing(true)
  }

  const isWriting = isOpen && !store.isCompleted && !refusal
  // A short log that was over when it was opened takes no more room than its lines; one that is written keeps its place.
  const wasOver = useRef(!isOpen)
  const isShort = wasOver.current && isKnown && whole < SHORT
  const digits = Math.max(3, String(store.total).length)
  const offset = range.top - ((range.top * ratio) % ROW) + (first - firstSeen) * ROW
  return (
    <section className="log panel" aria-label={`Log of ${stageName}`}>
      <header>
        <h2>{stageName}</h2>
        <span className="count" data-lines={store.total}>
          {store.total.toLocaleString('en')} {store.total === 1 ? 'line' : 'lines'}
          {isWriting && ', still writing'}
        </span>
        <div className="row push tight">
          {actions}
          <LogSearchBox search={search} />
          <label className="check small">
            <input type="checkbox" checked={isFollowing} onChange={(event) => setFollowing(event.target.checked)} /> Follow
          </label>
          <label className="check small hide-phone">
            <input type="checkbox" checked={showsTimes} onChange={(event) => setShowsTimes(event.target.checked)} /> Times
          </label>
          <a className="button plain icon-only" href={`/download/stage-log?${new URLSearchParams({ deployment: log.deploymentId, stage: log.stageId, attempt: String(log.attempt) })}`} download aria-label="Download the log" title="Download the log">
            <Icon name="download" />
          </a>
        </div>
      </header>
      <LogTrouble error={error} refusal={refusal} again={readAgain} />
      <div className={isShort ? 'log-box short' : 'log-box'} ref={box} onScroll={handleScroll} tabIndex={0} role="log" aria-label={`Lines of ${stageName}`} aria-live="off">
        {isKnown && store.total === 0 && error === undefined && (
          <p className="log-empty">{isOpen ? 'Nothing is written yet. Lines show as they come.' : 'This stage wrote no log.'}</p>
        )}
        <div className="log-space" style={{ height }}>
          <div className="log-lines" style={{ transform: `translateY(${offset}px)` }}>
            {Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => {
              const number = first + index
              return (
                <Line
                  key={number}
                  number={number}
                  line={store.get(number)}
                  digits={digits}
                  isMarked={number === wantedLine}
                  isCurrent={number === search.current}
                  search={search.text}
                  showsTime={showsTimes}
                />
              )
            })}
          </div>
        </div>
      </div>
    </section>
  )
}

interface LogTroubleProps {
  /** Why some of its lines cannot be read. */
  error: unknown
  /** Why it is not followed, or not any more. */
  refusal: string
  again: () => void
}

function LogTrouble({ error, refusal, again }: LogTroubleProps): ReactNode {
  if (error === undefined && !refusal) return null
  return (
    <div className="body">
      {error !== undefined ? (
        <ErrorBox error={error} again={again} />
      ) : (
        <div className="notice wait" role="status">
          <Status shown={{ word: 'New lines do not come any more', icon: 'unplugged', tone: 'wait' }} />
          <p className="anywhere">{refusal}</p>
        </div>
      )}
    </div>
  )
}

interface LineProps {
  number: number
  line: LogLine | undefined
  digits: number
  isMarked: boolean
  isCurrent: boolean
  search: string
  showsTime: boolean
}

const Line = memo(function Line({ number, line, digits, isMarked, isCurrent, search, showsTime }: LineProps): ReactNode {
  const severity = line?.severity === LogSeverity.ERROR ? ' error' : line?.severity === LogSeverity.SUCCESS ? ' success' : ''
  return (
    <div className={`log-line${isMarked ? ' marked' : ''}${isCurrent ? ' current' : ''}${severity}`} id={`line-${number}`}>
      <button
        type="button"
        className="log-number"
        tabIndex={isMarked ? 0 : -1}
        aria-label={`Link to line ${number}`}
        onClick={() => {
          navigate(`${location.pathname}${location.search}#L${number}`, { replace: true })
          void copyText(location.href).then((done) => done && toast(`The link to line ${number} is copied.`))
        }}
      >
        {String(number).padStart(digits)}
      </button>
      {showsTime && line && (
        <time className="log-time" title={formatExactly(line.at)}>
          {formatClock(new Date(line.at * 1000))}
        </time>
      )}
      {severity === ' error' && <span className="log-mark">error </span>}
      <span className="log-text">{line ? <LineText text={line.text} search={search} /> : '…'}</span>
    </div>
  )
})

function LineText({ text, search }: { text: string; search: string }): ReactNode {
  return parseAnsi(text).map((piece, index) => (
    <span key={index} className={piece.classes || undefined}>
      {search ? markFound(piece.text, search) : piece.text}
    </span>
  ))
}

function markFound(text: string, search: string): ReactNode {
  const lower = text.toLowerCase()
  const wanted = search.toLowerCase()
  const parts: ReactNode[] = []
  let position = 0
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, at + wanted.length)) {
    parts.push(text.slice(position, at), <mark key={at}>{text.slice(at, at + wanted.length)}</mark>)
    position = at + wanted.length
  }
  parts.push(text.slice(position))
  return parts
}

interface LogSearch {
  text: string
  setText: (text: string) => void
  found: number[]
  at: number
  current: number
  isSearching: boolean
  /** Could not all of the log be looked at? */
  hasFailed: boolean
  step: (by: number) => void
}

function useLogSearch(log: LogRef): LogSearch {
  const [text, setText] = useState('')
  const [found, setFound] = useState<number[]>([])
  const [at, setAt] = useState(0)
  const [isSearching, setSearching] = useState(false)
  const [hasFailed, setFailed] = useState(false)
  useEffect(() => {
    setFound([])
    setAt(0)
    setFailed(false)
    if (!text) return
    let isOld = false
    const timer = setTimeout(async () => {
      setSearching(true)
      let firstLine = 1n
      let lines: number[] = []
      try {
        while (!isOld && lines.length < 2000) {
          const answer = await logs.searchStageLog({ deploymentId: log.deploymentId, stageId: log.stageId, retriedCount: log.attempt, text, firstLine, most: 500 })
          if (isOld) return
          lines = [...lines, ...answer.matches.map((match) => Number(match.line))]
          setFound(lines)
          if (answer.nextLine === 0n) break
          firstLine = answer.nextLine
        }
      } catch {
        // The log itself shows why; but "not found" would be wrong.
        if (!isOld) setFailed(true)
      } finally {
        if (!isOld) setSearching(false)
      }
    }, 200)
    return () => {
      isOld = true
      clearTimeout(timer)
    }
  }, [text, log.deploymentId, log.stageId, log.attempt])
  const step = useCallback((by: number) => setAt((before) => (found.length === 0 ? 0 : (before + by + found.length) % found.length)), [found.length])
  return { text, setText, found, at, current: found[at] ?? 0, isSearching, hasFailed, step }
}

function LogSearchBox({ search }: { search: LogSearch }): ReactNode {
  return (
    <div className="row tight">
      <div className="search log-search">
        <Icon name="search" />
        <input
          type="search"
          data-search=""
          placeholder="Search the log"
          aria-label="Search the log"
          value={search.text}
          onChange={(event) => search.setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== 'Enter') return
            event.preventDefault()
            search.step(event.shiftKey ? -1 : 1)
          }}
        />
      </div>
      {search.text && (
        <span className="count" role="status">
          {describeFound(search)}
        </span>
      )}
    </div>
  )
}

function describeFound({ found, at, isSearching, hasFailed }: LogSearch): string {
  if (found.length > 0) return `${at + 1} of ${found.length}${isSearching || hasFailed ? '+' : ''}`
  if (isSearching) return 'searching'
  return hasFailed ? 'search failed' : 'not found'
}

function readLine(hash: string): number {
  const found = /^#L(\d{1,9})$/.exec(hash)
  return found ? Number(found[1]) : 0
}
