// SPDX-License-Identifier: Apache-2.0
// Which page is shown for which address.
import { type ComponentType, lazy, type ReactNode, Suspense, useEffect } from 'react'
import { readAhead } from './lib/query'
import { deploymentOf, OVERVIEW } from './lib/reads'
import { matchPath, navigate, usePath } from './lib/router'
import { useSessionState } from './lib/session'
import { Home } from './pages/Home'
import { SignIn, takeWantedPage } from './pages/SignIn'
import { Shell } from './Shell'
import { Empty, ErrorBox, Loading } from './ui/basics'
import { CrashGuard } from './ui/CrashGuard'
import { Link } from './lib/router'

interface Page<P> {
  Page: ComponentType<P>
  /** Fetches its code, if it is not there yet. */
  load: () => void
}

function makePage<M, P extends object>(fetchModule: () => Promise<M>, find: (module: M) => ComponentType<P>): Page<P> {
  let fetched: Promise<{ default: ComponentType<P> }> | undefined
  async function fetchPage(): Promise<{ default: ComponentType<P> }> {
    return { default: find(await fetchModule()) }
  }
  function fetchOnce(): Promise<{ default: ComponentType<P> }> {
    fetched ??= fetchPage()
    return fetched
  }
  return {
    Page: lazy(fetchOnce) as ComponentType<P>,
    load: () => {
      fetchOnce().catch(() => {
        fetched = undefined
      })
    },
  }
}

const Applications = makePage(
  () => import('./pages/Applications'),
  (page) => page.Applications,
)
const Application = makePage(
  () => import('./pages/Application'),
  (page) => page.Application,
)
const Deployments = makePage(
  () => import('./pages/Deployments'),
  (page) => page.Deployments,
)
const Deployment = makePage(
  () => import('./pages/Deployment'),
  (page) => page.Deployment,
)
const Pipeds = makePage(
  () => import('./pages/Pipeds'),
  (page) => page.Pipeds,
)
const Settings = makePage(
  () => import('./pages/settings/Settings'),
  (page) => page.Settings,
)
const Chains = makePage(
  () => import('./pages/Chains'),
  (page) => page.Chains,
)
const Events = makePage(
  () => import('./pages/Events'),
  (page) => page.Events,
)
const Traces = makePage(
  () => import('./pages/Traces'),
  (page) => page.Traces,
)
const Previews = makePage(
  () => import('./pages/Previews'),
  (page) => page.Previews,
)
const Audit = makePage(
  () => import('./pages/Audit'),
  (page) => page.Audit,
)
const Insights = makePage(
  () => import('./pages/Insights'),
  (page) => page.Insights,
)

type Parts = Record<string, string>

interface Place {
  pattern: string
  show: (parts: Parts) => ReactNode
  /** What the page needs from the server, to be asked for before it is shown. */
  prepare: (parts: Parts) => void
}

const PAGES: Place[] = [
  { pattern: '/', show: () => <Home />, prepare: () => readAhead(OVERVIEW.key, OVERVIEW.read) },
  { pattern: '/applications', show: () => <Applications.Page />, prepare: Applications.load },
  { pattern: '/applications/:id', show: ({ id }) => <Application.Page key={id} id={id ?? ''} />, prepare: Application.load },
  { pattern: '/deployments', show: () => <Deployments.Page />, prepare: Deployments.load },
  {
    pattern: '/deployments/:id',
    show: ({ id }) => <Deployment.Page key={id} id={id ?? ''} />,
    prepare: ({ id }) => {
      Deployment.load()
      const wanted = deploymentOf(id ?? '')
      readAhead(wanted.key, wanted.read)
    },
  },
  { pattern: '/pipeds', show: () => <Pipeds.Page />, prepare: Pipeds.load },
  { pattern: '/chains', show: () => <Chains.Page />, prepare: Chains.load },
  { pattern: '/events', show: () => <Events.Page />, prepare: Events.load },
  { pattern: '/traces', show: () => <Traces.Page />, prepare: Traces.load },
  { pattern: '/previews', show: () => <Previews.Page />, prepare: Previews.load },
  { pattern: '/insights', show: () => <Insights.Page />, prepare: Insights.load },
  { pattern: '/audit', show: () => <Audit.Page />, prepare: Audit.load },
  { pattern: '/settings', show: () => <Settings.Page part="" />, prepare: Settings.load },
  { pattern: '/settings/:part', show: ({ part }) => <Settings.Page part={part ?? ''} />, prepare: Settings.load },
]

/** Asks for code and data of the page at an address at once, while the rights of the session are still asked for. */
export function prepare(path: string): void {
  for (const place of PAGES) {
    const parts = matchPath(place.pattern, path)
    if (!parts) continue
    place.prepare(parts)
    return
  }
}

export function App(): ReactNode {
  const session = useSessionState()
  const path = usePath()
  useEffect(() => {
    if (session.state !== 'signed-in') return
    const wanted = takeWantedPage()
    if (wanted && location.pathname === '/') navigate(wanted, { replace: true })
  }, [session.state])
  if (session.state === 'asking') return <Loading />
  if (session.state === 'failed')
    return (
      <main className="page" tabIndex={-1}>
        <h1 className="hidden-text">PipeCD</h1>
        <ErrorBox error={session.error} again={session.again} />
      </main>
    )
  if (session.state === 'signed-out') return <SignIn />
  return (
    <Shell>
      <CrashGuard key={path}>
        <Suspense fallback={<Loading />}>{findPage(path)}</Suspense>
      </CrashGuard>
    </Shell>
  )
}

function findPage(path: string): ReactNode {
  for (const { pattern, show } of PAGES) {
    const parts = matchPath(pattern, path)
    if (parts) return show(parts)
  }
  return (
    <Empty title="There is no such page">
      <p>
        The address may be old. <Link to="/">Go home</Link>
        <span className="hide-phone">
          , or press <kbd>Ctrl</kbd> <kbd>K</kbd> to find something
        </span>
        .
      </p>
    </Empty>
  )
}
