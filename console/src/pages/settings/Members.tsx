// SPDX-License-Identifier: Apache-2.0
// Who may do what: groups of people and their roles, and how they sign in.
import { type FormEvent, type ReactNode, useState } from 'react'
import { web } from '../../api/clients'
import { explainShortly } from '../../api/errors'
import type { Project, ProjectRBACRole } from '../../api/gen/pipecd_wire/model/project_pb'
import { Kind, ofKinds } from '../../lib/concerns'
import { useQuery } from '../../lib/query'
import { useSession } from '../../lib/session'
import { Empty, ErrorBox, Loading, Panel } from '../../ui/basics'
import { ask, Dialog, toast } from '../../ui/dialogs'
import { Icon } from '../../ui/icons'
import { Roles } from './Roles'
import { SignInWays } from './SignInWays'

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
