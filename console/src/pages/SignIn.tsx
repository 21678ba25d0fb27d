// SPDX-License-Identifier: Apache-2.0
// Signing in. The forms go to the server as forms do: it sets the cookie, which no script can read.
import { type ReactNode, useEffect, useState } from 'react'
import icon from '../icon.svg'
import { useTitle } from '../ui/basics'
import { Icon } from '../ui/icons'

const WANTED = 'pipecd.wanted'
const PROJECT = 'pipecd.project'

/** Reads the message that a sign-in that failed has left, and forgets it. */
function takeError(): string {
  const found = /(?:^|; )error=([^;]*)/.exec(document.cookie)
  if (!found) return ''
  document.cookie = 'error=; max-age=0; path=/; samesite=strict'
  try {
    return decodeURIComponent(found[1] ?? '')
  } catch {
    return 'Signing in did not work.'
  }
}

/** Goes to the page that was wanted before the sign-in. */
export function takeWantedPage(): string | undefined {
  const wanted = sessionStorage.getItem(WANTED)
  sessionStorage.removeItem(WANTED)
  return wanted && /^\/(?!\/)/.test(wanted) ? wanted : undefined
}

export function SignIn(): ReactNode {
  useTitle('Sign in')
  const [error] = useState(takeError)
  const [project, setProject] = useState(() => new URLSearchParams(location.search).get('project') ?? localStorage.getItem(PROJECT) ?? 'default')
  useEffect(() => {
    const here = location.pathname + location.search + location.hash
    if (here !== '/') sessionStorage.setItem(WANTED, here)
  }, [])
  return (
    <div className="sign-in">
      <main className="panel" tabIndex={-1}>
        <div className="row">
          <img src={icon} alt="" width="32" height="32" />
          <h1>Sign in to PipeCD</h1>
        </div>
        {error && (
          <div className="notice bad" role="alert">
            <span className="status bad">
              <Icon name="failed" /> Signing in did not work
            </span>
            <p className="anywhere">{error}</p>
          </div>
        )}
        <form method="post" action="/auth/login/static" onSubmit={() => localStorage.setItem(PROJECT, project)}>
          <label className="field">
            Project
            <input name="project" value={project} onChange={(event) => setProject(event.target.value)} required autoCapitalize="none" spellCheck={false} />
          </label>
          <label className="field">
            User name
            <input name="username" autoComplete="username" required autoCapitalize="none" spellCheck={false} />
          </label>
          <label className="field">
            Password
            <input name="password" type="password" autoComplete="current-password" required />
          </label>
          <button type="submit" className="primary">
            Sign in
          </button>
          <button type="submit" formAction="/auth/login" formNoValidate>
            Single sign-on
          </button>
        </form>
        <p className="soft small">
          With a quickstart, open the address that it printed: it signs you in, once. No password yet? Whoever runs the server gets one with <code>pipecd project reset-password</code>.
        </p>
      </main>
    </div>
  )
}
