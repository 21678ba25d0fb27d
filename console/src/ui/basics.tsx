// SPDX-License-Identifier: Apache-2.0
// The small parts that every page uses.
import { type ReactNode, useEffect, useId, useRef, useState, useSyncExternalStore } from 'react'
import { explain } from '../api/errors'
import { parseDiff } from '../lib/diff'
import { formatAgo, formatDuration, formatExactly, toSeconds, type TimestampLike } from '../lib/times'
import type { Shown } from '../model/status'
import { Icon, type IconName } from './icons'

export function Status({ shown, pill = false, children }: { shown: Shown; pill?: boolean; children?: ReactNode }): ReactNode {
  return (
    <span className={`status ${shown.tone}${pill ? ' pill' : ''}`}>
      <Icon name={shown.icon} turning={shown.icon === 'busy'} />
      {children ?? shown.word}
    </span>
  )
}

const tickers = new Set<() => void>()
let nowSeconds = Math.floor(Date.now() / 1000)
setInterval(() => {
  if (document.hidden) return
  nowSeconds = Math.floor(Date.now() / 1000)
  for (const tick of tickers) tick()
}, 1000)

function subscribeToClock(tick: () => void): () => void {
  tickers.add(tick)
  return () => tickers.delete(tick)
}

/** What a function makes of the time now, in Unix seconds; the component is drawn again only when that changes. */
function useClock(format: (now: number) => string): string {
  return useSyncExternalStore(subscribeToClock, () => format(nowSeconds))
}

type Moment = bigint | number | TimestampLike | undefined

/** How long ago it was; the exact time on hover and for screen readers' asking. */
export function Time({ at, none = 'never' }: { at: Moment; none?: string }): ReactNode {
  const seconds = toSeconds(at)
  const text = useClock((now) => formatAgo(seconds, Math.max(now, seconds)))
  const ahead = useClock((now) => (seconds > now + 5 ? formatAgo(seconds, now) : ''))
  if (!seconds) return <span className="soft">{none}</span>
  return (
    <time dateTime={new Date(seconds * 1000).toISOString()} title={formatExactly(seconds)}>
      {ahead || text}
    </time>
  )
}

/** How long something took, or takes so far. */
export function Took({ from, to }: { from: Moment; to: Moment }): ReactNode {
  const begin = toSeconds(from)
  const end = toSeconds(to)
  return end ? <span>{formatDuration(end - begin)}</span> : <Running from={begin} />
}

function Running({ from }: { from: number }): ReactNode {
  return <span>{useClock((now) => formatDuration(now - from))}</span>
}

export function Labels({ labels }: { labels: Record<string, string> }): ReactNode {
  const entries = Object.entries(labels).sort(([one], [other]) => one.localeCompare(other))
  if (entries.length === 0) return null
  return (
    <span className="row tight">
      {entries.map(([key, value]) => (
        <span className="label" key={key} title={`${key}: ${value}`}>
          {key}:&nbsp;<b>{value}</b>
        </span>
      ))}
    </span>
  )
}

export function Hash({ hash, url }: { hash: string; url?: string }): ReactNode {
  const short = hash.slice(0, 8)
  const isSafe = url !== undefined && /^https?:\/\//.test(url)
  return isSafe ? (
    <a className="mono" href={url} rel="noreferrer noopener" target="_blank" title={hash}>
      {short}
    </a>
  ) : (
    <span className="mono" title={hash}>
      {short}
    </span>
  )
}

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    // Without TLS a browser has no clipboard for pages: the older way still works there.
    const area = document.createElement('textarea')
    area.value = text
    area.style.position = 'fixed'
    document.body.append(area)
    area.select()
    const done = document.execCommand('copy')
    area.remove()
    return done
  }
}

export function Copy({ text, what }: { text: string; what: string }): ReactNode {
  const [state, setState] = useState<'no' | 'done' | 'failed'>('no')
  async function copy(): Promise<void> {
    setState((await copyText(text)) ? 'done' : 'failed')
    setTimeout(() => setState('no'), 1500)
  }
  return (
    <button type="button" className="plain icon-only" onClick={() => void copy()} aria-label={`Copy ${what}`} title={state === 'done' ? 'Copied' : `Copy ${what}`}>
      <Icon name={state === 'done' ? 'check' : state === 'failed' ? 'failed' : 'copy'} />
      <span className="hidden-text" role="status">
        {state === 'done' ? 'Copied' : state === 'failed' ? 'The browser does not let the page copy' : ''}
      </span>
    </button>
  )
}

/** A command for a terminal. */
export function Command({ text }: { text: string }): ReactNode {
  return (
    <span className="command">
      <code>{text}</code>
      <Copy text={text} what="the command" />
    </span>
  )
}

export function Empty({ title, children, command }: { title: string; children?: ReactNode; command?: string }): ReactNode {
  return (
    <div className="empty">
      <h3>{title}</h3>
      {children}
      {command && <Command text={command} />}
    </div>
  )
}

export function Loading({ lines = 3 }: { lines?: number }): ReactNode {
  const [isLate, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200)
    return () => clearTimeout(timer)
  }, [])
  return (
    <div role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} className={isLate ? 'skeleton' : 'skeleton unseen'} />
      ))}
    </div>
  )
}

export function ErrorBox({ error, again }: { error: unknown; again?: () => void }): ReactNode {
  const { title, text, canRetry } = explain(error)
  return (
    <div className="notice bad" role="alert">
      <Status shown={{ word: title, icon: 'failed', tone: 'bad' }} />
      <p className="anywhere">{text}</p>
      {canRetry && again && (
        <div>
          <button type="button" onClick={again}>
            <Icon name="again" /> Try again
          </button>
        </div>
      )}
    </div>
  )
}

interface PanelProps {
  title: string
  count?: ReactNode
  actions?: ReactNode
  children: ReactNode
  className?: string
}

export function Panel({ title, count, actions, children, className }: PanelProps): ReactNode {
  const id = useId()
  return (
    <section className={`panel ${className ?? ''}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {count !== undefined && <span className="count">{count}</span>}
        {actions && <div className="row push">{actions}</div>}
      </header>
      {children}
    </section>
  )
}

export interface MenuItem {
  label: string
  icon?: IconName
  isDangerous?: boolean
  act: () => void
}

/** A button with a list of actions below it. */
export function Menu({ label, items, icon = 'more', text }: { label: string; items: MenuItem[]; icon?: IconName; text?: string }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (!isOpen) return
    box.current?.querySelector<HTMLElement>('[role=menuitem]')?.focus()
    const close = (event: Event): void => {
      if (!box.current?.contains(event.target as globalThis.Node)) setOpen(false)
    }
    addEventListener('pointerdown', close)
    return () => removeEventListener('pointerdown', close)
  }, [isOpen])
  function handleKey(event: React.KeyboardEvent): void {
    const all = [...(box.current?.querySelectorAll<HTMLElement>('[role=menuitem]') ?? [])]
    const at = all.indexOf(document.activeElement as HTMLElement)
    if (event.key === 'Escape') {
      setOpen(false)
      box.current?.querySelector('button')?.focus()
    } else if (event.key === 'ArrowDown') all[(at + 1) % all.length]?.focus()
    else if (event.key === 'ArrowUp') all[(at - 1 + all.length) % all.length]?.focus()
    else if (event.key === 'Tab') setOpen(false)
    else return
    if (event.key !== 'Tab') event.preventDefault()
  }
  if (items.length === 0) return null
  return (
    <div className="menu-box" ref={box} onKeyDown={isOpen ? handleKey : undefined}>
      <button type="button" className={text ? '' : 'plain icon-only'} aria-haspopup="menu" aria-expanded={isOpen} aria-label={label} title={label} onClick={() => setOpen(!isOpen)}>
        {text}
        <Icon name={text ? 'down' : icon} />
      </button>
      {isOpen && (
        <div className="menu" role="menu" aria-label={label}>
          {items.map((item) => (
            <button
              type="button"
              role="menuitem"
              tabIndex={-1}
              key={item.label}
              className={item.isDangerous ? 'danger' : ''}
              onClick={() => {
                setOpen(false)
                item.act()
              }}
            >
              {item.icon && <Icon name={item.icon} />}
              {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  )
}

/** Lines that a change adds and removes, with their signs. */
export function DiffView({ text }: { text: string }): ReactNode {
  return (
    <pre className="diff" tabIndex={0} aria-label="Differences">
      {parseDiff(text).map((line, index) => (
        <span key={index} className={`diff-line ${line.kind}`}>
          {line.text || ' '}
          {'\n'}
        </span>
      ))}
    </pre>
  )
}

export function SearchBox({ value, label, onChange, placeholder }: { value: string; label: string; onChange: (text: string) => void; placeholder?: string }): ReactNode {
  const [text, setText] = useState(value)
  const last = useRef(value)
  useEffect(() => {
    if (value === last.current) return
    last.current = value
    setText(value)
  }, [value])
  useEffect(() => {
    if (text === last.current) return
    const timer = setTimeout(() => {
      last.current = text
      onChange(text)
    }, 160)
    return () => clearTimeout(timer)
  }, [text, onChange])
  return (
    <div className="search">
      <Icon name="search" />
      <input type="search" value={text} aria-label={label} placeholder={placeholder ?? label} onChange={(event) => setText(event.target.value)} data-search="" />
    </div>
  )
}

const SMALL_WORDS = /^(the|a|an|it|its|no|another|approve|wait|run|nothing) /

/** A sentence of the server, which begins like a part of one. Names keep their case. */
export function capitalise(sentence: string): string {
  return SMALL_WORDS.test(sentence) ? sentence.charAt(0).toUpperCase() + sentence.slice(1) : sentence
}

/** Says in the tab of the browser where one is. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · PipeCD` : 'PipeCD'
  }, [title])
}
