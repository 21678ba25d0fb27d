// SPDX-License-Identifier: Apache-2.0
// Who is signed in, from where.
import type { ReactNode } from 'react'
import { access } from '../../api/clients'
import { Session_Via } from '../../api/gen/pipecd_wire/pipecd/api/access_pb'
import { nameProgram } from '../../lib/programs'
import { useQuery } from '../../lib/query'
import { ErrorBox, Loading, Panel, Status, Time } from '../../ui/basics'
import { ask, toast } from '../../ui/dialogs'

const VIA: Record<number, string> = {
  [Session_Via.STATIC_ADMIN]: 'password',
  [Session_Via.GITHUB]: 'GitHub',
  [Session_Via.OIDC]: 'single sign-on',
  [Session_Via.LINK]: 'one-time link',
}

export function Sessions(): ReactNode {
  const { data, error, again } = useQuery('sessions', () => access.listSessions({}))
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading />
  return (
    <Panel title="Sessions" count={data.sessions.length}>
      <table className="stacked">
        <thead>
          <tr>
            <th scope="col">Who</th>
            <th scope="col">Signed in</th>
            <th scope="col">From</th>
            <th scope="col">Program</th>
            <th scope="col">Ends</th>
            <th scope="col">
              <span className="hidden-text">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {data.sessions.map((session) => (
            <tr key={session.id}>
              <td className="first">
                <span className="strong">{session.subject}</span> {session.id === data.currentId && <Status shown={{ word: 'This one', icon: 'check', tone: 'good' }} pill />}
              </td>
              <td className="soft">
                <Time at={session.createdAt} /> by {VIA[session.via] ?? 'a way unknown'}
              </td>
              <td className="soft">{session.address}</td>
              <td className="soft agent">
                <span className="clamp" title={session.userAgent}>
                  {nameProgram(session.userAgent)}
                </span>
              </td>
              <td className="soft" data-label="Ends">
                <Time at={session.expiresAt} />
              </td>
              <td className="actions">
                <button
                  type="button"
                  className="plain"
                  aria-label={`End the session of ${session.subject}`}
                  onClick={() =>
                    ask({
                      title: `End this session of ${session.subject}?`,
                      text: <p>{session.id === data.currentId ? 'It is yours: you are signed out at once.' : 'Whoever uses it is signed out at once, in all its tabs.'}</p>,
                      action: 'End the session',
                      isDangerous: true,
                      act: async () => {
                        await access.revokeSession({ sessionId: session.id })
                        again()
                        toast('The session is ended.')
                      },
                    })
                  }
                >
                  End
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  )
}
