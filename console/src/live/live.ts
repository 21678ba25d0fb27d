// SPDX-License-Identifier: Apache-2.0
// The page's end of the stream: whether there is a connection, what changed, the new lines of a log.
import { tellSignedOut } from '../api/clients'
import { StreamHolder } from './holder'
import { type ChangedThing, type Connection, formatLogRef, type HolderMessage, type LogLines, type LogRef, type PageMessage } from './messages'

type ChangeListener = (changes: ChangedThing[] | 'everything') => void

let connection: Connection = 'connecting'
const connectionListeners = new Set<() => void>()
const changeListeners = new Set<ChangeListener>()
const lineListeners = new Map<string, Set<(lines: LogLines) => void>>()
let send: ((message: PageMessage) => void) | undefined

function receive(message: HolderMessage): void {
  switch (message.type) {
    case 'connection':
      connection = message.connection
      if (connection === 'signed-out') tellSignedOut()
      for (const listener of connectionListeners) listener()
      break
    case 'changes':
      for (const listener of changeListeners) listener(message.changes)
      break
    case 'read-again':
      for (const listener of changeListeners) listener('everything')
      break
    case 'lines':
      for (const listener of lineListeners.get(formatLogRef(message.log)) ?? []) listener(message.lines)
      break
  }
}

/** Begins to listen. Called once there is a session; calling it again makes the stream try at once. */
export function startLive(): void {
  if (send) {
    send({ type: 'retry' })
    return
  }
  send = connectToHolder()
  send({ type: 'hello' })
  addEventListener('pagehide', () => send?.({ type: 'bye' }))
  addEventListener('pageshow', (event) => {
    if (!event.persisted) return
    send?.({ type: 'hello' })
    for (const listener of changeListeners) listener('everything')
  })
  addEventListener('online', () => send?.({ type: 'retry' }))
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && connection === 'offline') send?.({ type: 'retry' })
  })
}

function connectToHolder(): (message: PageMessage) => void {
  if (typeof SharedWorker !== 'undefined') {
    const worker = new SharedWorker(new URL('./worker.ts', import.meta.url), { type: 'module', name: 'pipecd-live' })
    worker.port.onmessage = (event: MessageEvent<HolderMessage>) => receive(event.data)
    return (message) => worker.port.postMessage(message)
  }
  return connectWithoutWorker()
}

/** Without a SharedWorker only the visible tab holds a stream. */
function connectWithoutWorker(): (message: PageMessage) => void {
  const holder = new StreamHolder()
  const wanted = new Map<string, PageMessage>()
  document.addEventListener('visibilitychange', () => {
    holder.receive({ type: document.hidden ? 'bye' : 'hello' }, receive)
    if (document.hidden) return
    for (const message of wanted.values()) holder.receive(message, receive)
    for (const listener of changeListeners) listener('everything')
  })
  return (message) => {
    if (message.type === 'follow') wanted.set(formatLogRef(message.log), message)
    if (message.type === 'unfollow') wanted.delete(formatLogRef(message.log))
    holder.receive(message, receive)
  }
}

export function retryConnection(): void {
  send?.({ type: 'retry' })
}

export function getConnection(): Connection {
  return connection
}

export function onConnection(listener: () => void): () => void {
  connectionListeners.add(listener)
  return () => connectionListeners.delete(listener)
}

export function onChanges(listener: ChangeListener): () => void {
  changeListeners.add(listener)
  return () => changeListeners.delete(listener)
}

/** Calls the listener with the lines of a log from one number on, as they come. */
export function followLog(log: LogRef, firstLine: number, listener: (lines: LogLines) => void): () => void {
  const key = formatLogRef(log)
  const listeners = lineListeners.get(key) ?? new Set()
  lineListeners.set(key, listeners)
  listeners.add(listener)
  send?.({ type: 'follow', log, firstLine })
  return () => {
    listeners.delete(listener)
    if (listeners.size > 0) return
    lineListeners.delete(key)
    send?.({ type: 'unfollow', log })
  }
}
