// SPDX-License-Identifier: Apache-2.0
// The roles of the project: those that come with PipeCD, and its own, which can be made and changed.
import { type FormEvent, type ReactNode, useState } from 'react'
import { web } from '../../api/clients'
import { explainShortly } from '../../api/errors'
import type { Project, ProjectRBACRole } from '../../api/gen/pipecd_wire/model/project_pb'
import { useSession } from '../../lib/session'
import { ACTIONS, formatActions, formatResources, makeField, type Policy, RESOURCES, toPolicies, toTable } from '../../model/roles'
import { Labels, Panel } from '../../ui/basics'
import { ask, Dialog, toast } from '../../ui/dialogs'
import { Icon } from '../../ui/icons'

export function Roles({ project, again }: { project: Project; again: () => void }): ReactNode {
  const session = useSession()
  const [edited, setEdited] = useState<ProjectRBACRole | 'new'>()
  return (
    <Panel
      title="Roles"
      count={project.rbacRoles.length}
      actions={
        session.can('WebService/AddProjectRBACRole') && (
          <button type="button" onClick={() => setEdited('new')}>
            <Icon name="plus" /> Make a role
          </button>
        )
      }
    >
      <ul className="list">
        {project.rbacRoles.map((role) => (
          <li key={role.name}>
            <div className="row">
              <span className="strong">{role.name}</span>
              {role.isBuiltin && <span className="soft small">comes with PipeCD</span>}
              {!role.isBuiltin && (
                <span className="row tight push">
                  {session.can('WebService/UpdateProjectRBACRole') && (
                    <button type="button" className="plain" aria-label={`Change the role ${role.name}`} onClick={() => setEdited(role)}>
                      Change
                    </button>
                  )}
                  {session.can('WebService/DeleteProjectRBACRole') && (
                    <button type="button" className="plain" aria-label={`Delete the role ${role.name}`} onClick={() => askDelete(role, again)}>
                      Delete
                    </button>
                  )}
                </span>
              )}
            </div>
            {role.policies.map((policy, index) => (
              <PolicyLine key={index} policy={policy} />
            ))}
          </li>
        ))}
      </ul>
      {edited && <EditRole role={edited === 'new' ? undefined : edited} onClose={() => setEdited(undefined)} again={again} />}
    </Panel>
  )
}

function askDelete(role: ProjectRBACRole, again: () => void): void {
  ask({
    title: `Delete the role ${role.name}?`,
    text: <p>A role that a group still has cannot be deleted: take it from its groups first.</p>,
    action: 'Delete the role',
    isDangerous: true,
    act: async () => {
      await web.deleteProjectRBACRole({ name: role.name })
      again()
    },
  })
}

function PolicyLine({ policy }: { policy: Policy }): ReactNode {
  return (
    <p className="soft small">
      {formatActions(policy.actions)} of {formatResources(policy.resources.map((each) => each.type))} {policy.resources.map((each, at) => <Labels key={at} labels={each.labels} />)}
    </p>
  )
}

function EditRole({ role, onClose, again }: { role: ProjectRBACRole | undefined; onClose: () => void; again: () => void }): ReactNode {
  const [before] = useState(() => toTable(role?.policies ?? []))
  const [name, setName] = useState(role?.name ?? '')
  const [fields, setFields] = useState(before.fields)
  const [others, setOthers] = useState(before.others)
  const [error, setError] = useState('')
  function toggle(field: string): void {
    const next = new Set(fields)
    if (!next.delete(field)) next.add(field)
    setFields(next)
  }
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    const policies = toPolicies({ fields, others })
    try {
      if (role) await web.updateProjectRBACRole({ name: role.name, policies })
      else await web.addProjectRBACRole({ name: name.trim(), policies })
      again()
      onClose()
      toast(role ? `The role ${role.name} is changed.` : `The role ${name.trim()} is made.`)
    } catch (failure) {
      setError(explainShortly(failure))
    }
  }
  return (
    <Dialog title={role ? `Change the role ${role.name}` : 'Make a role'} onClose={onClose} isWide>
      <form onSubmit={(event) => void submit(event)}>
        {role ? (
          <p>What people of this role may do changes at once, also in tabs that are open.</p>
        ) : (
          <label className="field">
            Name
            <input value={name} onChange={(event) => setName(event.target.value)} required autoFocus />
          </label>
        )}
        <RightsTable fields={fields} onToggle={toggle} />
        {before.others.length > 0 && (
          <fieldset>
            <legend>Also, as set up elsewhere</legend>
            {before.others.map((policy, index) => (
              <label className="check" key={index}>
                <input type="checkbox" checked={others.includes(policy)} onChange={() => setOthers(before.others.filter((each) => (each === policy ? !others.includes(each) : others.includes(each))))} />
                <PolicyLine policy={policy} />
              </label>
            ))}
          </fieldset>
        )}
        {error && (
          <p className="bad" role="alert">
            {error}
          </p>
        )}
        <div className="buttons">
          <button type="button" onClick={onClose}>
            Back
          </button>
          <button type="submit" className="primary" disabled={name.trim() === '' || fields.size + others.length === 0}>
            {role ? 'Change the role' : 'Make the role'}
          </button>
        </div>
      </form>
    </Dialog>
  )
}

function RightsTable({ fields, onToggle }: { fields: ReadonlySet<string>; onToggle: (field: string) => void }): ReactNode {
  return (
    <div className="scroll-x" tabIndex={0} role="group" aria-label="Rights">
      <table className="choices">
        <thead>
          <tr>
            <th scope="col">May</th>
            {ACTIONS.map((action) => (
              <th scope="col" key={action}>
                {formatActions([action])}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {RESOURCES.map((resource) => (
            <tr key={resource}>
              <th scope="row">{formatResources([resource])}</th>
              {ACTIONS.map((action) => (
                <td key={action}>
                  <label className="choice">
                    <input
                      type="checkbox"
                      aria-label={`${formatActions([action])} of ${formatResources([resource])}`}
                      checked={fields.has(makeField(resource, action))}
                      onChange={() => onToggle(makeField(resource, action))}
                    />
                    <span className="only-phone" aria-hidden="true">
                      {formatActions([action])}
                    </span>
                  </label>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
