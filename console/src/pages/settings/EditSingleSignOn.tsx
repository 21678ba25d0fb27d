// SPDX-License-Identifier: Apache-2.0
// The provider that people sign in through. Its id and secret are written, never read.
import { type FormEvent, type ReactNode, useId, useState } from 'react'
import { web } from '../../api/clients'
import { explainShortly } from '../../api/errors'
import { type Project, ProjectSSOConfig_Provider as Provider } from '../../api/gen/pipecd_wire/model/project_pb'
import { findAddressFault } from '../../lib/addresses'
import { Dialog, toast } from '../../ui/dialogs'

interface Text {
  name: string
  label: string
  hint?: string
  placeholder?: string
  isAddress?: boolean
}

const OIDC_FIELDS: Text[] = [{ name: 'issuer', label: 'Issuer', placeholder: 'https://accounts.example.com', isAddress: true }]
const OIDC_MORE: Text[] = [
  { name: 'rolesClaimKey', label: 'Claim with the groups', hint: 'Tried without it: groups, roles, cognito:groups, custom:roles, custom:groups' },
  { name: 'usernameClaimKey', label: 'Claim with the name' },
  { name: 'avatarUrlClaimKey', label: 'Claim with the picture' },
  { name: 'scopes', label: 'Scopes', hint: 'Several with spaces between them; openid is always asked for' },
  { name: 'redirectUri', label: 'Address to come back to', isAddress: true },
  { name: 'authorizationEndpoint', label: 'Authorization endpoint', hint: 'The issuer tells it otherwise', isAddress: true },
  { name: 'tokenEndpoint', label: 'Token endpoint', isAddress: true },
  { name: 'userInfoEndpoint', label: 'User info endpoint', isAddress: true },
  { name: 'proxyUrl', label: 'Proxy', isAddress: true },
]
const GITHUB_MORE: Text[] = [
  { name: 'baseUrl', label: 'Address of GitHub Enterprise', hint: 'github.com without it', isAddress: true },
  { name: 'uploadUrl', label: 'Its address for uploads', isAddress: true },
  { name: 'proxyUrl', label: 'Proxy', isAddress: true },
]

type Values = Record<string, string>

function readValues(project: Project, provider: Provider): Values {
  const known = provider === Provider.OIDC ? project.sso?.oidc : project.sso?.github
  const values: Values = { clientId: '', clientSecret: '' }
  for (const [name, value] of Object.entries(known ?? {})) {
    if (name === 'clientId' || name === 'clientSecret') continue
    if (typeof value === 'string') values[name] = value
    else if (Array.isArray(value)) values[name] = value.join(' ')
  }
  return values
}

export function EditSingleSignOn({ project, onClose, again }: { project: Project; onClose: () => void; again: () => void }): ReactNode {
  const id = useId()
  const [provider, setProvider] = useState(project.sso?.provider ?? Provider.OIDC)
  const [values, setValues] = useState(() => readValues(project, provider))
  const [hours, setHours] = useState(String(project.sso?.sessionTtl ?? 168))
  const [error, setError] = useState('')
  const [isBusy, setBusy] = useState(false)
  const isOidc = provider === Provider.OIDC
  const isKnown = project.sso !== undefined && project.sso.provider === provider
  const fields = isOidc ? [...OIDC_FIELDS, ...OIDC_MORE] : GITHUB_MORE
  const faults = Object.fromEntries(fields.filter((field) => field.isAddress).map((field) => [field.name, findAddressFault(values[field.name] ?? '')]))
  const isComplete = (isKnown || (values.clientId && values.clientSecret)) && (!isOidc || values.issuer) && /^[1-9][0-9]*$/.test(hours)
  const canSave = Boolean(isComplete) && !Object.values(faults).some(Boolean) && !isBusy
  const set = (name: string, value: string): void => setValues((before) => ({ ...before, [name]: value }))
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    if (!canSave) return
    setBusy(true)
    setError('')
    const trimmed = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.trim()]))
    const client = isOidc ? { oidc: { ...trimmed, scopes: (trimmed.scopes ?? '').split(/\s+/).filter(Boolean) } } : { github: trimmed }
    try {
      await web.updateProjectSSOConfig({ sso: { provider, sessionTtl: BigInt(hours), ...client } })
      again()
      onClose()
      toast('Single sign-on is saved. Sign in with it in a private window before you switch the static admin off.')
    } catch (failure) {
      setError(explainShortly(failure))
      setBusy(false)
    }
  }
  const input = (field: Text): ReactNode => (
    <label className="field" key={field.name}>
      {field.label}
      <input value={values[field.name] ?? ''} onChange={(event) => set(field.name, event.target.value)} placeholder={field.placeholder} spellCheck={false} aria-label={field.label} aria-invalid={Boolean(faults[field.name])} aria-describedby={`${id}-${field.name}`} />
      <small id={`${id}-${field.name}`} className={faults[field.name] ? 'bad' : 'soft'}>
        {faults[field.name] || field.hint}
      </small>
    </label>
  )
  return (
    <Dialog title="Single sign-on" onClose={onClose} isWide>
      <form onSubmit={(event) => void submit(event)} autoComplete="off">
        <label className="field">
          Provider
          <select
            value={provider}
            onChange={(event) => {
              const chosen = Number(event.target.value) as Provider
              setProvider(chosen)
              setValues(readValues(project, chosen))
            }}
          >
            <option value={Provider.OIDC}>OpenID Connect</option>
            <option value={Provider.GITHUB}>GitHub</option>
          </select>
        </label>
        {project.sharedSsoName && <p className="wait">This replaces {project.sharedSsoName}, which the projects of this control plane share, for this project.</p>}
        {isOidc && OIDC_FIELDS.map(input)}
        <label className="field">
          Client id
          <input value={values.clientId} onChange={(event) => set('clientId', event.target.value)} placeholder={isKnown ? 'stays as it is' : ''} autoComplete="off" spellCheck={false} />
        </label>
        <label className="field">
          Client secret
          <input type="password" value={values.clientSecret} onChange={(event) => set('clientSecret', event.target.value)} placeholder={isKnown ? 'stays as it is' : ''} autoComplete="new-password" aria-label="Client secret" aria-describedby={`${id}-secret`} />
          <small className="soft" id={`${id}-secret`}>It is kept encrypted, and never shown again.</small>
        </label>
        <label className="field">
          Hours until people sign in again
          <input value={hours} onChange={(event) => setHours(event.target.value)} inputMode="numeric" />
        </label>
        <details>
          <summary>More</summary>
          {(isOidc ? OIDC_MORE : GITHUB_MORE).map(input)}
        </details>
        {error && (
          <p className="bad" role="alert">
            {error}
          </p>
        )}
        <div className="buttons">
          <button type="button" onClick={onClose}>
            Back
          </button>
          <button type="submit" className="primary" disabled={!canSave}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  )
}
