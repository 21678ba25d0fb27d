// SPDX-License-Identifier: Apache-2.0
// What is around every page: where one can go, who one is, whether there is a connection.
import { type ReactNode, useEffect, useState, useSyncExternalStore } from 'react'
import icon from './icon.svg'
import { Link, navigate, usePath } from './lib/router'
import { useSession } from './lib/session'
import { getConnection, onConnection, retryConnection } from './live/live'
import { Palette } from './Palette'
import { Shortcuts } from './Shortcuts'
import { Icon, type IconName } from './ui/icons'
import { Questions, Toasts } from './ui/dialogs'

export interface Place {
  to: string
  name: string
  icon: IconName
  /** Only for those who may call it. */
  method: string
  /** `g` and this key lead there. */
  key: string
}

export const PLACES: Place[] = [
  { to: '/', name: 'Home', icon: 'home', method: 'OverviewService/GetOverview', key: 'h' },
  { to: '/applications', name: 'Applications', icon: 'apps', method: 'OverviewService/SearchApplications', key: 'a' },
  { to: '/deployments', name: 'Deployments', icon: 'deploys', method: 'WebService/ListDeployments', key: 'd' },
  { to: '/pipeds', name: 'Pipeds', icon: 'agents', method: 'PipedService/ListPipeds', key: 'p' },
  { to: '/chains', name: 'Chains', icon: 'chain', method: 'WebService/ListDeploymentChains', key: 'c' },
  { to: '/events', name: 'Events', icon: 'bell', method: 'WebService/ListEvents', key: 'e' },
  { to: '/traces', name: 'Traces', icon: 'git', method: 'WebService/ListDeploymentTraces', key: 't' },
  { to: '/previews', name: 'Previews', icon: 'differs', method: 'APIService/GetPlanPreviewResults', key: 'v' },
  { to: '/insights', name: 'Insights', icon: 'chart', method: 'WebService/GetInsightData', key: 'i' },
  { to: '/audit', name: 'Audit', icon: 'book', method: 'ProjectService/ListAudit', key: 'u' },
  { to: '/settings', name: 'Settings', icon: 'settings', method: 'WebService/GetProject', key: 's' },
]

export function Shell({ children }: { children: ReactNode }): ReactNode {
  const session = useSession()
  const path = usePath()
  const [isMenuOpen, setMenuOpen] = useState(false)
  const [open, setOpen] = useState<'palette' | 'shortcuts' | undefined>()
  const places = PLACES.filter((place) => session.can(place.method))
  useEffect(() => setMenuOpen(false), [path])
  useKeys(places, setOpen)
  return (
    <div className="shell">
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <header className="top">
        <button type="button" className="plain icon-only" aria-label="Menu" aria-expanded={isMenuOpen} onClick={() => setMenuOpen(true)}>
          <Icon name="menu" />
        </button>
        <Link to="/" className="brand">
          <img src={icon} alt="" /> PipeCD
        </Link>
        <button type="button" className="plain icon-only push" aria-label="Find something" onClick={() => setOpen('palette')}>
          <Icon name="search" />
        </button>
      </header>
      {isMenuOpen && <button type="button" className="curtain" aria-label="Close the menu" onClick={() => setMenuOpen(false)} />}
      <div className={isMenuOpen ? 'side open' : 'side'} onKeyDown={(event) => event.key === 'Escape' && setMenuOpen(false)}>
        <Link to="/" className="brand">
          <img src={icon} alt="" /> PipeCD
        </Link>
        <button type="button" className="hide-phone" onClick={() => setOpen('palette')}>
          <Icon name="search" /> Find <kbd className="push">Ctrl K</kbd>
        </button>
        <nav aria-label="Pages">
          <ul>
            {places.map((place) => (
              <li key={place.to}>
                <Link to={place.to} aria-current={isAt(place.to, path) ? 'page' : undefined}>
                  <Icon name={place.icon} /> {place.name}
                </Link>
              </li>
            ))}
          </ul>
        </nav>
        <div className="foot">
          <ConnectionSign />
          <div className="who">
            <span className="avatar" aria-hidden="true">
              {session.name.slice(0, 2).toUpperCase()}
            </span>
            <span className="stack tightest">
              <span className="cut" title={session.name}>
                {session.name}
              </span>
              <span className="cut soft small" title={session.projectId}>
                {session.projectId}
              </span>
            </span>
          </div>
          <div className="row tight">
            <button type="button" className="plain" onClick={() => setOpen('shortcuts')}>
              Shortcuts <kbd>?</kbd>
            </button>
            <form method="post" action="/auth/logout">
              <button type="submit" className="plain">
                Sign out
              </button>
            </form>
          </div>
        </div>
      </div>
      <div className="column">
        <OfflineBanner />
        <main className="page" id="content" tabIndex={-1}>
          {children}
        </main>
      </div>
      {open === 'palette' && <Palette places={places} onClose={() => setOpen(undefined)} />}
      {open === 'shortcuts' && <Shortcuts places={places} onClose={() => setOpen(undefined)} />}
      <Questions />
      <Toasts />
    </div>
  )
}

function isAt(to: string, path: string): boolean {
  return to === '/' ? path === '/' : path === to || path.startsWith(`${to}/`)
}

function useKeys(places: Place[], open: (what: 'palette' | 'shortcuts') => void): void {
  useEffect(() => {
    let wentAt = 0
    function handle(event: KeyboardEvent): void {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault()
        open('palette')
        return
      }
      const target = event.target as HTMLElement
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return
      if (event.key === '?') open('shortcuts')
      else if (event.key === '/') {
        const search = document.querySelector<HTMLElement>('[data-search]')
        if (!search) return
        event.preventDefault()
        search.focus()
      } else if (event.key === 'g') wentAt = Date.now()
      else if (Date.now() - wentAt < 1200) {
        const place = places.find((each) => each.key === event.key)
        wentAt = 0
        if (place) navigate(place.to)
      }
    }
    addEventListener('keydown', handle)
    return () => removeEventListener('keydown', handle)
  }, [places, open])
}

function useConnection(): string {
  return useSyncExternalStore(onConnection, getConnection)
}

function ConnectionSign(): ReactNode {
  const connection = useConnection()
  const isLive = connection === 'online'
  return (
    <span className={`status small ${isLive ? 'good' : 'wait'}`} id="connection" data-connection={connection}>
      <span className="sign">
        <Icon name={isLive ? 'plug' : 'unplugged'} />
      </span>
      {isLive ? 'Live' : connection === 'offline' ? 'Offline' : 'Connecting'}
    </span>
  )
}

function OfflineBanner(): ReactNode {
  const isOffline = useConnection() === 'offline'
  return (
    <div role="status" className="offline-box">
      {isOffline && (
        <div className="offline">
          <Icon name="unplugged" />
          <span>No connection to the control plane: what is shown may be old. It is tried again by itself.</span>
          <button type="button" className="push" onClick={retryConnection}>
            Try now
          </button>
        </div>
      )}
    </div>
  )
}
