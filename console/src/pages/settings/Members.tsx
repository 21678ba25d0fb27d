// SPDX-License-Identifier: Apache-2.0
// Who may do what: groups of people, their roles, and the static admin.
import { type FormEvent, type ReactNode, useState } from 'react'
import { web } from '../../api/clients'
import { explainShortly } from '../../api/errors'
import { type Project, type ProjectRBACRole, ProjectSSOConfig_Provider } from '../../api/gen/pipecd_wire/model/project_pb'
import { Kind, ofKinds } from '../../lib/concerns'
import { useQuery } from '../../lib/query'
import { useSession } from '../../lib/session'
import { Empty, ErrorBox, Loading, Panel, Status } from '../../ui/basics'
import { ask, Dialog, toast } from '../../ui/dialogs'
import { Icon } from '../../ui/icons'
import { Roles } from './Roles'

export function Members(): ReactNode {
  const { data, error, again } = useQuery('project', () => web.getProject({}), ofKinds(Kind.PROJECT))
  const project = data?.project
  if (!project) return error ? <ErrorBox error={error} again={again} /> : <Loading />
  return (
    <div className="stack wide">
      <Groups project={project} again={again} />
      <Roles project={project} again={again} />
      <SignInWays project={project} again={again} />
    </div>
  )
}

interface Props {
  project: Project
  again: () => void
}

function Groups({ project, again }: Props): ReactNode {
  const session = useSession()
  const [isAdding, setAdding] = useState(false)
  return (
    <Panel
      title="Groups"
      count={project.userGroups.length || undefined}
      actions={
        session.can('WebService/AddProjectUserGroup') && (
          <button type="button" onClick={() => setAdding(true)}>
            <Icon name="plus" /> Give a group a role
          </button>
        )
      }
    >
      {project.userGroups.length === 0 ? (
        <Empty title="No group has a role" command="pipectl user-group add --help">
          <p>People who sign in through a provider get the roles of their groups there.</p>
        </Empty>
      ) : (
        <table className="stacked">
          <thead>
            <tr>
              <th scope="col">Group at the provider</th>
              <th scope="col">Role</th>
              <th scope="col">
                <span className="hidden-text">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {project.userGroups.map((group) => (
              <tr key={`${group.ssoGroup}/${group.role}`}>
                <td className="first strong">{group.ssoGroup}</td>
                <td>{group.role}</td>
                <td className="actions">
                  {session.can('WebService/DeleteProjectUserGroup') && (
                    <button
                      type="button"
                      className="plain"
                      aria-label={`Take the role from ${group.ssoGroup}`}
                      onClick={() =>
                        ask({
                          title: `Take the role ${group.role} from ${group.ssoGroup}?`,
                          text: <p>Its people lose the rights of this role at once, also in tabs that are open.</p>,
                          action: 'Take it',
                          isDangerous: true,
                          act: async () => {
                            await web.deleteProjectUserGroup({ ssoGroup: group.ssoGroup })
                            again()
                          },
                        })
                      }
                    >
                      Take the role
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {isAdding && <AddGroup roles={project.rbacRoles} onClose={() => setAdding(false)} again={again} />}
    </Panel>
  )
}

function AddGroup({ roles, onClose, again }: { roles: ProjectRBACRole[]; onClose: () => void; again: () => void }): ReactNode {
  const [group, setGroup] = useState('')
  const [role, setRole] = useState(roles.find((each) => each.name === 'Viewer')?.name ?? roles[0]?.name ?? '')
  const [error, setError] = useState('')
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    try {
      await web.addProjectUserGroup({ ssoGroup: group.trim(), role })
      again()
      onClose()
      toast(`${group.trim()} has the role ${role}.`)
    } catch (failure) {
      setError(explainShortly(failure))
    }
  }
  return (
    <Dialog title="Give a group a role" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <label className="field">
          Group at the provider
          <input value={group} onChange={(event) => setGroup(event.target.value)} required autoFocus placeholder="org/team" />
        </label>
        <label className="field">
          Role
          <select value={role} onChange={(event) => setRole(event.target.value)}>
            {roles.map((each) => (
              <option key={each.name}>{each.name}</option>
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
          <button type="submit" className="primary" disabled={group.trim() === ''}>
            Give the role
          </button>
        </div>
      </form>
    </Dialog>
  )
}

function SignInWays({ project, again }: Props): ReactNode {
  const session = useSession()
  const isOff = project.staticAdminDisabled
  const maySwitch = session.can(isOff ? 'WebService/EnableStaticAdmin' : 'WebService/DisableStaticAdmin')
  const provider = project.sharedSsoName || (project.sso ? (ProjectSSOConfig_Provider[project.sso.provider] ?? '') : '')
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
          <div className="row">
            <span className="strong">Single sign-on</span>
            {provider ? <span>{provider}</span> : <span className="soft">Not set up. It is configured in the control plane's file, under spec.sharedSSOConfigs.</span>}
          </div>
        </li>
      </ul>
    </Panel>
  )
}
