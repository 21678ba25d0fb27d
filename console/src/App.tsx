// SPDX-License-Identifier: Apache-2.0
// Which page is shown for which address.
import { lazy, type ReactNode, Suspense, useEffect } from 'react'
import { matchPath, navigate, usePath } from './lib/router'
import { useSessionState } from './lib/session'
import { Home } from './pages/Home'
import { SignIn, takeWantedPage } from './pages/SignIn'
import { Shell } from './Shell'
import { Empty, ErrorBox, Loading } from './ui/basics'
import { CrashGuard } from './ui/CrashGuard'
import { Link } from './lib/router'

const Applications = lazy(() => import('./pages/Applications').then((page) => ({ default: page.Applications })))
const Application = lazy(() => import('./pages/Application').then((page) => ({ default: page.Application })))
const Deployments = lazy(() => import('./pages/Deployments').then((page) => ({ default: page.Deployments })))
const Deployment = lazy(() => import('./pages/Deployment').then((page) => ({ default: page.Deployment })))
const Pipeds = lazy(() => import('./pages/Pipeds').then((page) => ({ default: page.Pipeds })))
const Settings = lazy(() => import('./pages/settings/Settings').then((page) => ({ default: page.Settings })))
const Chains = lazy(() => import('./pages/Chains').then((page) => ({ default: page.Chains })))
const Events = lazy(() => import('./pages/Events').then((page) => ({ default: page.Events })))
const Traces = lazy(() => import('./pages/Traces').then((page) => ({ default: page.Traces })))
const Previews = lazy(() => import('./pages/Previews').then((page) => ({ default: page.Previews })))
const Audit = lazy(() => import('./pages/Audit').then((page) => ({ default: page.Audit })))
const Insights = lazy(() => import('./pages/Insights').then((page) => ({ default: page.Insights })))

type Parts = Record<string, string>

const PAGES: [string, (parts: Parts) => ReactNode][] = [
  ['/', () => <Home />],
  ['/applications', () => <Applications />],
  ['/applications/:id', ({ id }) => <Application key={id} id={id ?? ''} />],
  ['/deployments', () => <Deployments />],
  ['/deployments/:id', ({ id }) => <Deployment key={id} id={id ?? ''} />],
  ['/pipeds', () => <Pipeds />],
  ['/chains', () => <Chains />],
  ['/events', () => <Events />],
  ['/traces', () => <Traces />],
  ['/previews', () => <Previews />],
  ['/insights', () => <Insights />],
  ['/audit', () => <Audit />],
  ['/settings', () => <Settings part="" />],
  ['/settings/:part', ({ part }) => <Settings part={part ?? ''} />],
]

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
  for (const [pattern, show] of PAGES) {
    const parts = matchPath(pattern, path)
    if (parts) return show(parts)
  }
  return (
    <Empty title="There is no such page">
      <p>
        The address may be old. <Link to="/">Go home</Link>, or press <kbd>Ctrl</kbd> <kbd>K</kbd> to find something.
      </p>
    </Empty>
  )
}
