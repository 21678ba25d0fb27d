// SPDX-License-Identifier: Apache-2.0
// Sealing a secret, so that it can be kept in git: only the piped that is chosen can open it.
import { type FormEvent, type ReactNode, useState } from 'react'
import { pipeds, web } from '../../api/clients'
import { explainShortly } from '../../api/errors'
import { Kind, ofKinds } from '../../lib/concerns'
import { useQuery } from '../../lib/query'
import { Copy, Empty, ErrorBox, Loading, Panel } from '../../ui/basics'

export function Secrets(): ReactNode {
  const { data, error: failed, again } = useQuery('pipeds', () => pipeds.listPipeds({}), ofKinds(Kind.PIPED))
  const [pipedId, setPipedId] = useState('')
  const [text, setText] = useState('')
  const [isBase64, setBase64] = useState(false)
  const [sealed, setSealed] = useState('')
  const [error, setError] = useState('')
  if (!data) return failed ? <ErrorBox error={failed} again={again} /> : <Loading />
  const able = data.pipeds.map((item) => item.piped).filter((piped) => piped && !piped.disabled && piped.secretEncryption && piped.secretEncryption.type !== 'NONE')
  const chosen = pipedId || able[0]?.id || ''
  async function seal(event: FormEvent): Promise<void> {
    event.preventDefault()
    setError('')
    setSealed('')
    try {
      setSealed((await web.generateApplicationSealedSecret({ pipedId: chosen, data: text, base64Encoding: isBase64 })).data)
      setText('')
    } catch (failure) {
      setError(explainShortly(failure))
    }
  }
  return (
    <Panel title="Seal a secret">
      {able.length === 0 ? (
        <Empty title="No piped can open sealed secrets" command="pipectl encrypt --help">
          <p>
            Give one a key pair under <code>spec.secretManagement</code> of its configuration, and start it again.
          </p>
        </Empty>
      ) : (
        <form className="body stack narrow" onSubmit={(event) => void seal(event)}>
          <p className="soft">
            What comes out is put into git under <code>encryption.encryptedSecrets</code>. Only the piped can open it; nobody can read it back here.
          </p>
          <label className="field">
            The piped that opens it
            <select value={chosen} onChange={(event) => setPipedId(event.target.value)}>
              {able.map((piped) => (
                <option key={piped?.id} value={piped?.id}>
                  {piped?.name}
                </option>
              ))}
            </select>
          </label>
          <label className="field">
            The secret
            <textarea rows={4} value={text} onChange={(event) => setText(event.target.value)} required autoComplete="off" spellCheck={false} />
          </label>
          <label className="check">
            <input type="checkbox" checked={isBase64} onChange={(event) => setBase64(event.target.checked)} /> Encode it as base64 first
          </label>
          <div>
            <button type="submit" className="primary" disabled={text === ''}>
              Seal
            </button>
          </div>
          {error && (
            <p className="bad" role="alert">
              {error}
            </p>
          )}
          {sealed && (
            <div className="stack" role="status">
              <div className="row">
                <h3>Sealed</h3>
                <Copy text={sealed} what="the sealed secret" />
              </div>
              <pre className="text-block wrap" tabIndex={0}>
                {sealed}
              </pre>
            </div>
          )}
        </form>
      )}
    </Panel>
  )
}
