// SPDX-License-Identifier: Apache-2.0
// The settings of the project, a page for each.
import { type ReactNode, useEffect, useRef } from 'react'
import { Link } from '../../lib/router'
import { type Session, useSession } from '../../lib/session'
import { Empty, useTitle } from '../../ui/basics'
import { ApiKeys } from './ApiKeys'
import { Members } from './Members'
import { Secrets } from './Secrets'
import { Sessions } from './Sessions'
import { Windows } from './Windows'

interface Part {
  path: string
  name: string
  method: string
  show: () => ReactNode
}

const PARTS: Part[] = [
  { path: 'members', name: 'Members and roles', method: 'WebService/GetProject', show: () => <Members /> },
  { path: 'api-keys', name: 'API keys', method: 'ApiKeyService/ListApiKeys', show: () => <ApiKeys /> },
  { path: 'sessions', name: 'Sessions', method: 'AccessService/ListSessions', show: () => <Sessions /> },
  { path: 'windows', name: 'Windows', method: 'WindowService/GetRules', show: () => <Windows /> },
  { path: 'secrets', name: 'Sealed secrets', method: 'WebService/GenerateApplicationSealedSecret', show: () => <Secrets /> },
]

function listParts(session: Session): Part[] {
  return PARTS.filter((part) => session.can(part.method))
}

export function Settings({ part: wanted }: { part: string }): ReactNode {
  const session = useSession()
  const parts = listParts(session)
  const part = wanted ? parts.find((each) => each.path === wanted) : parts[0]
  useTitle(part?.name ?? 'Settings')
  const tabs = useRef<HTMLElement>(null)
  // On a phone the tabs are wider than the page: the one that is open is in sight.
  useEffect(() => tabs.current?.querySelector('[aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' }), [part])
  return (
    <div className="stack wide">
      <h1>Settings</h1>
      <nav className="tabs" aria-label="Settings" ref={tabs}>
        {parts.map((each) => (
          <Link key={each.path} to={`/settings/${each.path}`} aria-current={each === part ? 'page' : undefined}>
            {each.name}
          </Link>
        ))}
      </nav>
      {part ? part.show() : <Empty title="There is no such setting, or you have no right to see it" />}
    </div>
  )
}
