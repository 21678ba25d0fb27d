// SPDX-License-Identifier: Apache-2.0
// How people sign in: the static admin, and single sign-on.
import { type ReactNode, useState } from 'react'
import { web } from '../../api/clients'
import { type Project, ProjectSSOConfig_Provider as Provider } from '../../api/gen/pipecd_wire/model/project_pb'
import { useSession } from '../../lib/session'
import { Panel, Status } from '../../ui/basics'
import { ask } from '../../ui/dialogs'
import { EditSingleSignOn } from './EditSingleSignOn'

export function SignInWays({ project, again }: { project: Project; again: () => void }): ReactNode {
  const session = useSession()
  const isOff = project.staticAdminDisabled
  const maySwitch = session.can(isOff ? 'WebService/EnableStaticAdmin' : 'WebService/DisableStaticAdmin')
  return (
    <Panel title="Ways to sign in">
      <ul className="list">
        <li>
          <div className="row">
            <span className="strong">Static admin</span>
            <span className="soft">{project.staticAdmin?.username}</span>
            <Status shown={isOff ? { word: 'Off', icon: 'ban', tone: 'off' } : { word: 'On', icon: 'check', tone: 'good' }} />
            {maySwitch && (
              <button
                type="button"
                className="plain push"
                onClick={() =>
                  ask({
                    title: isOff ? 'Switch the static admin on?' : 'Switch the static admin off?',
                    text: <p>{isOff ? 'Its name and password open the project again.' : 'Nobody can sign in with its password any more. Make sure that single sign-on works first.'}</p>,
                    action: isOff ? 'Switch on' : 'Switch off',
                    isDangerous: !isOff,
                    act: async () => {
                      if (isOff) await web.enableStaticAdmin({})
                      else await web.disableStaticAdmin({})
                      again()
                    },
                  })
                }
              >
                {isOff ? 'Switch on' : 'Switch off'}
              </button>
            )}
          </div>
        </li>
        <li>
          <SingleSignOn project={project} again={again} />
        </li>
      </ul>
    </Panel>
  )
}

const PROVIDER_NAMES: Record<number, string> = { [Provider.GITHUB]: 'GitHub', [Provider.OIDC]: 'OpenID Connect' }

function SingleSignOn({ project, again }: { project: Project; again: () => void }): ReactNode {
  const session = useSession()
  const [isEditing, setEditing] = useState(false)
  const where = project.sso?.provider === Provider.OIDC ? project.sso.oidc?.issuer : project.sso?.github?.baseUrl
  return (
    <div className="row">
      <span className="strong">Single sign-on</span>
      {project.sharedSsoName ? (
        <span>
          {project.sharedSsoName} <span className="soft">shared by the projects of this control plane</span>
        </span>
      ) : project.sso ? (
        <span>
          {PROVIDER_NAMES[project.sso.provider] ?? Provider[project.sso.provider]} <span className="soft anywhere">{where}</span>
        </span>
      ) : (
        <span className="soft">Not set up</span>
      )}
      {session.can('WebService/UpdateProjectSSOConfig') && (
        <button type="button" className="plain push" onClick={() => setEditing(true)}>
          {project.sso ? 'Change' : 'Set up'}
          <span className="hidden-text"> single sign-on</span>
        </button>
      )}
      {isEditing && <EditSingleSignOn project={project} onClose={() => setEditing(false)} again={again} />}
    </div>
  )
}
