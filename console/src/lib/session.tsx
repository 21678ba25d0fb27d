// SPDX-License-Identifier: Apache-2.0
// Who is signed in, and what they may do. Only what the server would allow is offered.
import { Code, ConnectError } from '@connectrpc/connect'
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useRef, useState } from 'react'
import { access, onSignedOut } from '../api/clients'
import type { GetMyRightsResponse } from '../api/gen/pipecd_wire/pipecd/api/access_pb'
import { onChanges, startLive } from '../live/live'
import { Kind } from './concerns'
import { forgetAll } from './query'

export interface Session {
  name: string
  projectId: string
  sessionId: string
  roles: string[]
  /** May the person call this RPC, such as `DeploymentService/ApproveStage`, for things with these labels? */
  can: (method: string, labels?: Record<string, string>) => boolean
}

export type SessionState = { state: 'asking' } | { state: 'signed-out' } | { state: 'failed'; error: unknown } | { state: 'signed-in'; session: Session }

const Context = createContext<SessionState & { again: () => void }>({ state: 'asking', again: () => undefined })

const RIGHTS_AGAIN_MS = 60_000

export function SessionProvider({ children }: { children: ReactNode }): ReactNode {
  const [state, setState] = useState<SessionState>({ state: 'asking' })
  const who = useRef('')
  const read = useCallback(async () => {
    try {
      const rights = await access.getMyRights({})
      const me = `${rights.projectId}/${rights.name}/${rights.sessionId}`
      // Not for the first one: what was read ahead is theirs.
      if (who.current && who.current !== me) forgetAll()
      who.current = me
      setState({ state: 'signed-in', session: makeSession(rights) })
      startLive()
    } catch (error) {
      if (ConnectError.from(error).code === Code.Unauthenticated) setState({ state: 'signed-out' })
      else setState((before) => (before.state === 'signed-in' ? before : { state: 'failed', error }))
    }
  }, [])
  useEffect(() => {
    void read()
    const forget = onSignedOut(() => {
      forgetAll()
      who.current = ''
      setState({ state: 'signed-out' })
    })
    const unwatch = onChanges((changes) => {
      if (changes === 'everything' || changes.some((change) => change.kind === Kind.PROJECT)) void read()
    })
    const timer = setInterval(() => {
      if (!document.hidden && who.current) void read()
    }, RIGHTS_AGAIN_MS)
    return () => {
      forget()
      unwatch()
      clearInterval(timer)
    }
  }, [read])
  const value = useMemo(() => ({ ...state, again: () => void read() }), [state, read])
  return <Context.Provider value={value}>{children}</Context.Provider>
}

/** Services of other packages than our own. */
const PACKAGES: Record<string, string> = { WebService: 'grpc.service.webservice', APIService: 'grpc.service.apiservice' }

function makeSession(rights: GetMyRightsResponse): Session {
  const calls = new Map(rights.calls.map((call) => [call.method, call.labelSets.map((set) => set.labels)]))
  function can(method: string, labels?: Record<string, string>): boolean {
    const prefix = PACKAGES[method.split('/')[0] ?? ''] ?? 'pipecd.api.v1'
    const sets = calls.get(`${prefix}.${method}`)
    if (!sets) return false
    if (sets.length === 0 || labels === undefined) return true
    return sets.some((set) => Object.entries(set).every(([key, value]) => labels[key] === value))
  }
  return { name: rights.name, projectId: rights.projectId, sessionId: rights.sessionId, roles: rights.roles, can }
}

export function useSessionState(): SessionState & { again: () => void } {
  return useContext(Context)
}

/** The session; only below the shell, which is shown to nobody else. */
export function useSession(): Session {
  const state = useContext(Context)
  if (state.state !== 'signed-in') throw new Error('there is no session')
  return state.session
}
