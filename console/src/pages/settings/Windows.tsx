// SPDX-License-Identifier: Apache-2.0
// When deployments may begin, and the emergency stop.
import { type FormEvent, type ReactNode, useState } from 'react'
import { windows } from '../../api/clients'
import { explainShortly } from '../../api/errors'
import { type Window, Window_Effect } from '../../api/gen/pipecd_wire/pipecd/control/control_pb'
import { Kind, ofKinds } from '../../lib/concerns'
import { useQuery } from '../../lib/query'
import { useSession } from '../../lib/session'
import { formatDuration, toSeconds } from '../../lib/times'
import { Empty, ErrorBox, Labels, Loading, Panel, Status, Time } from '../../ui/basics'
import { ask, Dialog, toast } from '../../ui/dialogs'
import { Icon } from '../../ui/icons'

export function Windows(): ReactNode {
  const session = useSession()
  const [isAdding, setAdding] = useState(false)
  const { data, error, again } = useQuery('rules', () => windows.getRules({}), ofKinds(Kind.RULES))
  const preview = useQuery('windows-preview', () => windows.previewWindows({}), ofKinds(Kind.RULES)).data
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading />
  const stop = data.rules?.emergencyStop
  const all = data.rules?.windows ?? []
  const maySet = session.can('WindowService/SetWindow')
  return (
    <div className="stack wide">
      {stop ? (
        <div className="notice bad">
          <h2 className="status bad">
            <Icon name="stopped" /> Emergency stop
          </h2>
          <p className="anywhere">
            {stop.by} stopped all deployments <Time at={stop.since} />: {stop.reason}
          </p>
          {session.can('WindowService/ResumeDeployments') && (
            <div>
              <button
                type="button"
                onClick={() =>
                  ask({
                    title: 'End the emergency stop?',
                    text: <p>Deployments that wait begin, and paused ones go on, at once.</p>,
                    action: 'Let deployments go on',
                    act: async () => {
                      await windows.resumeDeployments({})
                      toast('Deployments go on.')
                    },
                  })
                }
              >
                Let deployments go on
              </button>
            </div>
          )}
        </div>
      ) : (
        session.can('WindowService/StopDeployments') && (
          <div>
            <button
              type="button"
              className="danger"
              onClick={() =>
                ask({
                  title: 'Stop all deployments of the project?',
                  text: <p>No new deployment begins, and running ones pause before their next stage. Rollbacks are never stopped.</p>,
                  action: 'Stop all deployments',
                  isDangerous: true,
                  field: { label: 'Reason, shown to everyone', isRequired: true },
                  act: async (reason) => {
                    await windows.stopDeployments({ reason })
                    toast('All deployments are stopped.')
                  },
                })
              }
            >
              <Icon name="stopped" /> Emergency stop
            </button>
          </div>
        )
      )}
      <Panel
        title="Windows"
        count={all.length || undefined}
        actions={
          maySet && (
            <button type="button" onClick={() => setAdding(true)}>
              <Icon name="plus" /> Add a window
            </button>
          )
        }
      >
        {all.length === 0 ? (
          <Empty title="There is no window: deployments may begin at any time" command="pipectl window set --help">
            <p>A window allows or forbids the beginning of deployments at times that recur. What runs finishes, and rollbacks are never stopped.</p>
          </Empty>
        ) : (
          <ul className="list">
            {all.map((window) => (
              <WindowItem key={window.id} window={window} mayDelete={session.can('WindowService/DeleteWindow')} />
            ))}
          </ul>
        )}
      </Panel>
      {all.length > 0 && preview && (
        <Panel title="The next seven days, for an application without labels">
          <ul className="list">
            {preview.spans.slice(0, 30).map((span, index) => (
              <li key={index}>
                <div className="row">
                  <Status shown={span.reason ? { word: 'Closed', icon: 'ban', tone: 'wait' } : { word: 'Open', icon: 'check', tone: 'good' }} />
                  <span>
                    {formatLocal(toSeconds(span.start))} to {formatLocal(toSeconds(span.end))}
                  </span>
                  {span.reason && <span className="soft anywhere">{span.reason}</span>}
                </div>
              </li>
            ))}
          </ul>
        </Panel>
      )}
      {isAdding && <AddWindow onClose={() => setAdding(false)} />}
    </div>
  )
}

function formatLocal(seconds: number): string {
  return new Date(seconds * 1000).toLocaleString('en-GB', { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' })
}

function WindowItem({ window, mayDelete }: { window: Window; mayDelete: boolean }): ReactNode {
  const isDeny = window.effect === Window_Effect.DENY
  return (
    <li>
      <div className="row">
        <Status shown={isDeny ? { word: 'Forbids', icon: 'ban', tone: 'wait' } : { word: 'Allows', icon: 'check', tone: 'good' }} />
        <span className="strong">{window.name}</span>
        <Labels labels={window.labels} />
        {window.applicationId && <code className="small">{window.applicationId}</code>}
        {mayDelete && (
          <button
            type="button"
            className="plain push"
            aria-label={`Delete the window ${window.name}`}
            onClick={() =>
              ask({
                title: `Delete the window ${window.name}?`,
                text: <p>{isDeny ? 'Deployments that wait for its end begin at once.' : 'Where it was the only one that allows, deployments may begin at any time.'}</p>,
                action: 'Delete the window',
                isDangerous: true,
                act: async () => {
                  await windows.deleteWindow({ name: window.name })
                },
              })
            }
          >
            Delete
          </button>
        )}
      </div>
      <p className="soft small anywhere">
        from {window.start.replace('T', ' ')} ({window.timeZone}) for {formatDuration(toSeconds(window.duration))}
        {window.rule ? `, ${window.rule}` : ', once'}. {window.reason}
      </p>
    </li>
  )
}

const RULES: [string, string][] = [
  ['', 'Once'],
  ['FREQ=DAILY', 'Every day'],
  ['FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR', 'Monday to Friday'],
  ['FREQ=WEEKLY;BYDAY=SA,SU', 'Saturday and Sunday'],
  ['FREQ=WEEKLY', 'Every week on that day'],
]

function AddWindow({ onClose }: { onClose: () => void }): ReactNode {
  const [name, setName] = useState('')
  const [effect, setEffect] = useState<Window_Effect>(Window_Effect.DENY)
  const [start, setStart] = useState('')
  const [hours, setHours] = useState('8')
  const [rule, setRule] = useState('')
  const [label, setLabel] = useState('')
  const [reason, setReason] = useState('')
  const [error, setError] = useState('')
  const timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC'
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    const at = label.indexOf(':')
    const seconds = Math.round(Number(hours) * 3600)
    try {
      await windows.setWindow({
        window: {
          name: name.trim(),
          effect,
          start: start.length === 16 ? `${start}:00` : start,
          duration: { seconds: BigInt(seconds), nanos: 0 },
          rule,
          timeZone,
          labels: at > 0 ? { [label.slice(0, at).trim()]: label.slice(at + 1).trim() } : {},
          reason: reason.trim(),
        },
      })
      onClose()
      toast(`The window ${name.trim()} counts from now on.`)
    } catch (failure) {
      setError(explainShortly(failure))
    }
  }
  return (
    <Dialog title="Add a window" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <label className="field">
          Name
          <input value={name} onChange={(event) => setName(event.target.value)} required autoFocus />
        </label>
        <label className="field">
          In it, deployments
          <select value={effect} onChange={(event) => setEffect(Number(event.target.value))}>
            <option value={Window_Effect.DENY}>may not begin</option>
            <option value={Window_Effect.ALLOW}>may begin, and at no other time</option>
          </select>
        </label>
        <label className="field">
          First start ({timeZone})
          <input type="datetime-local" value={start} onChange={(event) => setStart(event.target.value)} required />
        </label>
        <label className="field">
          Hours
          <input type="number" min="0.25" step="0.25" value={hours} onChange={(event) => setHours(event.target.value)} required />
        </label>
        <label className="field">
          Again
          <select value={rule} onChange={(event) => setRule(event.target.value)}>
            {RULES.map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <label className="field">
          <span>
            Only for applications with this label <small>(key:value; empty for all)</small>
          </span>
          <input value={label} onChange={(event) => setLabel(event.target.value)} placeholder="env:production" />
        </label>
        <label className="field">
          Reason, shown to everyone
          <input value={reason} onChange={(event) => setReason(event.target.value)} />
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
          <button type="submit" className="primary">
            Add the window
          </button>
        </div>
      </form>
    </Dialog>
  )
}
