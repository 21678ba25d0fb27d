// SPDX-License-Identifier: Apache-2.0
// Where the person is: the address of the page, and links that do not load it anew.
import { type AnchorHTMLAttributes, type MouseEvent, type ReactNode, useCallback, useSyncExternalStore } from 'react'

const listeners = new Set<() => void>()

function tell(): void {
  for (const listener of listeners) listener()
}

addEventListener('popstate', tell)

export function navigate(to: string, how: { replace?: boolean; keepScroll?: boolean } = {}): void {
  if (to === location.pathname + location.search + location.hash) return
  const isOtherPage = new URL(to, location.href).pathname !== location.pathname
  if (how.replace) history.replaceState(null, '', to)
  else history.pushState(null, '', to)
  tell()
  if (isOtherPage && !how.keepScroll) {
    scrollTo(0, 0)
    // Whoever listens to the page is told that another one is here.
    requestAnimationFrame(() => document.querySelector<HTMLElement>('main')?.focus({ preventScroll: true }))
  }
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function usePath(): string {
  return useSyncExternalStore(subscribe, () => location.pathname)
}

export function useHash(): string {
  return useSyncExternalStore(subscribe, () => location.hash)
}

/** The query of the address, and a way to change parts of it: an empty value takes one away. */
export function useSearch(): [URLSearchParams, (changes: Record<string, string | string[]>, how?: { push?: boolean; hash?: string }) => void] {
  const text = useSyncExternalStore(subscribe, () => location.search)
  const change = useCallback((changes: Record<string, string | string[]>, how: { push?: boolean; hash?: string } = {}) => {
    const next = new URLSearchParams(location.search)
    for (const [name, value] of Object.entries(changes)) {
      next.delete(name)
      for (const each of Array.isArray(value) ? value : [value]) if (each) next.append(name, each)
    }
    const query = next.toString()
    navigate(`${location.pathname}${query && `?${query}`}${how.hash ?? location.hash}`, { replace: !how.push })
  }, [])
  return [new URLSearchParams(text), change]
}

interface LinkProps extends AnchorHTMLAttributes<HTMLAnchorElement> {
  to: string
  children: ReactNode
}

export function Link({ to, onClick, children, ...rest }: LinkProps): ReactNode {
  function follow(event: MouseEvent<HTMLAnchorElement>): void {
    onClick?.(event)
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    navigate(to)
  }
  return (
    <a href={to} onClick={follow} {...rest}>
      {children}
    </a>
  )
}

/** Returns the parts of a path that stand for `:name` in a pattern, or undefined when it does not fit. */
export function matchPath(pattern: string, path: string): Record<string, string> | undefined {
  const wanted = pattern.split('/')
  const given = path.replace(/\/+$/, '').split('/')
  if (wanted.length !== (given.length === 1 ? 2 : given.length) && !(pattern === '/' && given.length === 1)) return undefined
  const parts: Record<string, string> = {}
  for (const [index, part] of wanted.entries()) {
    const word = given[index] ?? ''
    if (part.startsWith(':')) {
      if (!word) return undefined
      parts[part.slice(1)] = decode(word)
    } else if (part !== word) return undefined
  }
  return parts
}

function decode(word: string): string {
  try {
    return decodeURIComponent(word)
  } catch {
    return word
  }
}
