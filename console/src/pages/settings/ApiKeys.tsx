// SPDX-License-Identifier: Apache-2.0
// Keys for programs.
import { type FormEvent, type ReactNode, useState } from 'react'
import { apiKeys, web } from '../../api/clients'
import { explainShortly } from '../../api/errors'
import { APIKey_Role } from '../../api/gen/pipecd_wire/model/apikey_pb'
import { useQuery } from '../../lib/query'
import { useSession } from '../../lib/session'
import { Copy, Empty, ErrorBox, Loading, Panel, Time } from '../../ui/basics'
import { ask, Dialog, toast } from '../../ui/dialogs'
import { Icon } from '../../ui/icons'

const ROLES = { [APIKey_Role.READ_ONLY]: 'Read only', [APIKey_Role.READ_WRITE]: 'Read and write' } as Record<number, string>

export function ApiKeys(): ReactNode {
  const session = useSession()
  const [isAdding, setAdding] = useState(false)
  const [key, setKey] = useState('')
  const { data, error, again } = useQuery('api-keys', () => apiKeys.listApiKeys({}))
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading />
  const mayDisable = session.can('WebService/DisableAPIKey')
  return (
    <Panel
      title="API keys"
      count={data.keys.length || undefined}
      actions={
        session.can('ApiKeyService/GenerateApiKey') && (
          <button type="button" onClick={() => setAdding(true)}>
            <Icon name="plus" /> Make a key
          </button>
        )
      }
    >
      {data.keys.length === 0 ? (
        <Empty title="There is no API key" command="pipectl login">
          <p>Keys are for programs. People sign in, in a terminal too:</p>
        </Empty>
      ) : (
        <table className="stacked">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">May</th>
              <th scope="col">Made</th>
              <th scope="col">Last used</th>
              <th scope="col">Ends</th>
              <th scope="col">
                <span className="hidden-text">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.keys.map(({ key: each, expiresAt }) => (
              <tr key={each?.id}>
                <td className="first strong">{each?.name}</td>
                <td>{ROLES[each?.role ?? 0]}</td>
                <td className="soft" data-label="Made">
                  <Time at={each?.createdAt} /> by {each?.creator}
                </td>
                <td className="soft" data-label="Last used">
                  <Time at={each?.lastUsedAt} none="never used" />
                </td>
                <td className="soft" data-label="Ends">
                  <Time at={expiresAt} none="never" />
                </td>
                <td className="actions">
                  {mayDisable && (
                    <button
                      type="button"
                      className="plain"
                      aria-label={`Revoke ${each?.name ?? ''}`}
                      onClick={() =>
                        ask({
                          title: `Revoke the key ${each?.name ?? ''}?`,
                          text: <p>Programs that use it are refused at once. This cannot be undone.</p>,
                          action: 'Revoke',
                          isDangerous: true,
                          act: async () => {
                            await web.disableAPIKey({ id: each?.id ?? '' })
                            again()
                            toast('The key counts no more.')
                          },
                        })
                      }
                    >
                      Revoke
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {isAdding && (
        <Make
          onClose={() => setAdding(false)}
          onMade={(made) => {
            setAdding(false)
            setKey(made)
            again()
          }}
        />
      )}
      {key && (
        <Dialog title="The key is made" onClose={() => setKey('')}>
          <p>
            It is shown <b>now and never again</b>.
          </p>
          <div className="row">
            <code className="anywhere secret" id="made-key">
              {key}
            </code>
            <Copy text={key} what="the key" />
          </div>
          <div className="buttons">
            <button type="button" className="primary" onClick={() => setKey('')}>
              I have kept the key
            </button>
          </div>
        </Dialog>
      )}
    </Panel>
  )
}

const LIVES: [string, number][] = [
  ['30 days', 30],
  ['90 days', 90],
  ['A year', 365],
  ['Never', 0],
]

function Make({ onClose, onMade }: { onClose: () => void; onMade: (key: string) => void }): ReactNode {
  const [name, setName] = useState('')
  const [role, setRole] = useState<APIKey_Role>(APIKey_Role.READ_ONLY)
  const [days, setDays] = useState(90)
  const [error, setError] = useState('')
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    const expiresAt = days === 0 ? 0n : BigInt(Math.floor(Date.now() / 1000) + days * 86_400)
    try {
      onMade((await apiKeys.generateApiKey({ name: name.trim(), role, expiresAt })).key)
    } catch (failure) {
      setError(explainShortly(failure))
    }
  }
  return (
    <Dialog title="Make an API key" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <label className="field">
          Name
          <input value={name} onChange={(event) => setName(event.target.value)} required autoFocus placeholder="the program that will use it" />
        </label>
        <label className="field">
          What it may do
          <select value={role} onChange={(event) => setRole(Number(event.target.value))}>
            {Object.entries(ROLES).map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <label className="field">
          Ends after
          <select value={days} onChange={(event) => setDays(Number(event.target.value))}>
            {LIVES.map(([text, value]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
        {error && (
          <p className="bad" role="alert">
            {error}
          </p>
        )}
        <div className="buttons">
          <button type="button" onClick={onClose}>
            Back
          </button>
          <button type="submit" className="primary" disabled={name.trim() === ''}>
            Make the key
          </button>
        </div>
      </form>
    </Dialog>
  )
}
