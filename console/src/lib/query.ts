// SPDX-License-Identifier: Apache-2.0
// What pages have read from the server: read once, shared, kept while it is read again, and read again when it changed.
import { useCallback, useEffect, useSyncExternalStore } from 'react'
import { onChanges } from '../live/live'
import type { ChangedThing } from '../live/messages'

export interface Answer<T> {
  data: T | undefined
  error: unknown
  isLoading: boolean
}

/** Says whether a change is about what was read. */
export type Concern = (change: ChangedThing) => boolean

interface Entry<T> {
  answer: Answer<T>
  read: () => Promise<T>
  concern: Concern
  users: Set<() => void>
  isReading: boolean
  isStale: boolean
  timer: ReturnType<typeof setTimeout> | undefined
  lastReadAt: number
}

const entries = new Map<string, Entry<unknown>>()
const KEPT = 60
const GATHER_MS = 60
const AT_MOST_EVERY_MS = 400

onChanges((changes) => {
  for (const [key, entry] of entries) {
    if (changes !== 'everything' && !changes.some(entry.concern)) continue
    if (entry.users.size > 0) readSoon(entry)
    else entries.delete(key)
  }
})

/** Many changes come at once: they become one read, and a busy thing is read a few times a second at most. */
function readSoon(entry: Entry<unknown>): void {
  entry.isStale = true
  if (entry.timer !== undefined || entry.isReading) return
  const wait = Math.max(GATHER_MS, entry.lastReadAt + AT_MOST_EVERY_MS - Date.now())
  entry.timer = setTimeout(() => {
    entry.timer = undefined
    void readNow(entry)
  }, wait)
}

async function readNow(entry: Entry<unknown>): Promise<void> {
  if (entry.isReading) {
    entry.isStale = true
    return
  }
  entry.isReading = true
  entry.isStale = false
  entry.lastReadAt = Date.now()
  try {
    entry.answer = { data: await entry.read(), error: undefined, isLoading: false }
  } catch (error) {
    entry.answer = { data: entry.answer.data, error, isLoading: false }
  } finally {
    entry.isReading = false
  }
  for (const user of entry.users) user()
  if (entry.isStale && entry.users.size > 0) readSoon(entry)
}

function forgetOldest(): void {
  if (entries.size <= KEPT) return
  for (const [key, entry] of entries) {
    if (entry.users.size === 0) entries.delete(key)
    if (entries.size <= KEPT) return
  }
}

const NOTHING: Answer<never> = { data: undefined, error: undefined, isLoading: false }
const never: Concern = () => false

/** Reads something for as long as a component shows it. No key: nothing is read. */
export function useQuery<T>(key: string | undefined, read: () => Promise<T>, concern: Concern = never): Answer<T> & { again: () => void } {
  const subscribe = useCallback(
    (user: () => void) => {
      if (key === undefined) return () => undefined
      const used = findEntry(key, read, concern)
      used.users.add(user)
      if (used.lastReadAt === 0) void readNow(used as Entry<unknown>)
      return () => used.users.delete(user)
    },
    // The key says all that the functions depend on.
    [key],
  )
  const get = useCallback((): Answer<T> => {
    if (key === undefined) return NOTHING
    return (entries.get(key) as Entry<T> | undefined)?.answer ?? LOADING
  }, [key])
  const answer = useSyncExternalStore(subscribe, get)
  useEffect(() => {
    const entry = key === undefined ? undefined : entries.get(key)
    if (entry) {
      entry.read = read
      entry.concern = concern
    }
  })
  const again = useCallback(() => {
    const entry = key === undefined ? undefined : entries.get(key)
    if (entry) void readNow(entry)
  }, [key])
  return { ...answer, again }
}

function findEntry<T>(key: string, read: () => Promise<T>, concern: Concern): Entry<T> {
  const known = entries.get(key) as Entry<T> | undefined
  if (known) return known
  const made: Entry<T> = { answer: LOADING, read, concern, users: new Set(), isReading: false, isStale: false, timer: undefined, lastReadAt: 0 }
  entries.set(key, made as Entry<unknown>)
  forgetOldest()
  return made
}

/** Begins to read what a page will ask for, before the page is there. */
export function readAhead<T>(key: string, read: () => Promise<T>): void {
  const entry = findEntry(key, read, never)
  if (entry.lastReadAt === 0) void readNow(entry as Entry<unknown>)
}

const LOADING: Answer<never> = { data: undefined, error: undefined, isLoading: true }

/** Forgets everything, because another person may be signed in now. */
export function forgetAll(): void {
  entries.clear()
}
