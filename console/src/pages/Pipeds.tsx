// SPDX-License-Identifier: Apache-2.0
// The agents and their plugins: which are there, how they are, and what to do about it.
import { type FormEvent, type ReactNode, useState } from 'react'
import { pipeds, web } from '../api/clients'
import { explainShortly } from '../api/errors'
import type { ListPipedsResponse_Item as Item } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import { type Piped, Piped_ConnectionStatus } from '../api/gen/pipecd_wire/model/piped_pb'
import { type PluginState, PluginState_State } from '../api/gen/pipecd_wire/pipecd/push/push_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { type Session, useSession } from '../lib/session'
import { showPiped, showPlugin } from '../model/status'
import { Copy, Empty, ErrorBox, Loading, Menu, type MenuItem, Status, Time, useTitle } from '../ui/basics'
import { ask, Dialog, toast } from '../ui/dialogs'
import { Icon } from '../ui/icons'

export function Pipeds(): ReactNode {
  useTitle('Pipeds')
  const session = useSession()
  const [search, setSearch] = useSearch()
  const [made, setMade] = useState<MadeKey>()
  const [isAdding, setAdding] = useState(false)
  const { data, error, again } = useQuery('pipeds', () => pipeds.listPipeds({}), ofKinds(Kind.PIPED))
  // Only this older call tells of keys.
  const withKeys = useQuery('pipeds-with-keys', () => web.listPipeds({}), ofKinds(Kind.PIPED)).data?.pipeds
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={6} />
  const keyCounts = new Map((withKeys ?? []).map((piped) => [piped.id, piped.keys.length]))
  const showsDisabled = search.get('disabled') === '1'
  const all = data.pipeds.filter((item) => showsDisabled || !item.piped?.disabled)
  const hidden = data.pipeds.length - data.pipeds.filter((item) => !item.piped?.disabled).length
  return (
    <div className="stack wide">
      <div className="head">
        <h1>Pipeds</h1>
        {session.can('WebService/RegisterPiped') && (
          <button type="button" onClick={() => setAdding(true)}>
            <Icon name="plus" /> Add a piped
          </button>
        )}
      </div>
      {hidden > 0 && (
        <label className="check">
          <input type="checkbox" checked={showsDisabled} onChange={(event) => setSearch({ disabled: event.target.checked ? '1' : '' })} /> Show disabled ones ({hidden})
        </label>
      )}
      {all.length === 0 && (
        <div className="panel">
          <Empty title={hidden > 0 ? 'Every piped is disabled' : 'There is no piped yet'} command="pipectl piped register --name NAME">
            <p>A piped is the agent that deploys. It runs next to what it deploys to and needs no open port.</p>
          </Empty>
        </div>
      )}
      {all.map((item) => (
        <PipedPanel key={item.piped?.id} item={item} session={session} keyCount={keyCounts.get(item.piped?.id ?? '') ?? 0} onKey={setMade} />
      ))}
      {isAdding && <Add onClose={() => setAdding(false)} onMade={setMade} />}
      {made && <ShowKey made={made} projectId={session.projectId} onClose={() => setMade(undefined)} />}
    </div>
  )
}

interface MadeKey {
  pipedId: string
  name: string
  key: string
  isNew: boolean
}

function PipedPanel({ item, session, keyCount, onKey }: { item: Item; session: Session; keyCount: number; onKey: (made: MadeKey) => void }): ReactNode {
  const piped = item.piped
  if (!piped) return null
  const isOnline = piped.status === Piped_ConnectionStatus.ONLINE
  return (
    <section className="panel" aria-label={piped.name}>
      <header>
        <h2>{piped.name}</h2>
        <Status shown={piped.disabled ? { word: 'Disabled', icon: 'ban', tone: 'off' } : showPiped(piped.status)} pill />
        <span className="soft small">
          {piped.version || 'no version yet'}
          {!isOnline && (
            <>
              , last seen <Time at={item.lastSeenAt} />
            </>
          )}
        </span>
        <div className="row push tight">
          <Link to={`/applications?piped=${encodeURIComponent(piped.id)}`}>Applications</Link>
          <Menu label={`More for ${piped.name}`} items={listActions(item, piped, session, keyCount, onKey)} />
        </div>
      </header>
      {item.alarms.map((alarm) => (
        <p className="alarm" role="alert" key={alarm}>
          <Icon name="failed" /> {alarm}
        </p>
      ))}
      {piped.desc && <p className="body-line soft">{piped.desc}</p>}
      {item.plugins.length === 0 ? (
        <p className="body-line soft">{isOnline ? 'It tells of no plugin.' : 'Its plugins show once it is connected.'}</p>
      ) : (
        <ul className="list">
          {item.plugins.map((plugin) => (
            <Plugin key={plugin.name} plugin={plugin} piped={piped} session={session} isOnline={isOnline} />
          ))}
        </ul>
      )}
      <footer className="small soft">
        <span>
          Id <code>{piped.id}</code>
        </span>
        <Copy text={piped.id} what="the id" />
        <span>
          {keyCount > 0 && (keyCount === 1 ? '1 key' : `${keyCount} keys`)}
          {piped.startedAt > 0n && (
            <>
              {keyCount > 0 && ', '}started <Time at={piped.startedAt} />
            </>
          )}
        </span>
      </footer>
    </section>
  )
}

function Plugin({ plugin, piped, session, isOnline }: { plugin: PluginState; piped: Piped; session: Session; isOnline: boolean }): ReactNode {
  const targets = piped.plugins.find((each) => each.name === plugin.name)?.deployTargets ?? []
  return (
    <li>
      <div className="row">
        <Status shown={showPlugin(plugin.state)} />
        <span className="strong">{plugin.name}</span>
        <span className="soft small">{plugin.version}</span>
        {targets.length > 0 && <span className="soft small">deploys to {targets.join(', ')}</span>}
        {plugin.restarts > 0 && <span className="soft small">{plugin.restarts === 1 ? 'restarted once' : `restarted ${plugin.restarts} times`}</span>}
        <span className="soft small push">
          since <Time at={plugin.since} />
        </span>
        {isOnline && session.can('PipedService/RestartPlugin') && (
          <button type="button" className="plain" onClick={() => restartPlugin(piped, plugin.name)} aria-label={`Restart ${plugin.name}`}>
            Restart
          </button>
        )}
      </div>
      {plugin.reason && plugin.state !== PluginState_State.READY && <p className="anywhere">{plugin.reason}</p>}
      {plugin.lastOutput.length > 0 && (
        <details open={plugin.state === PluginState_State.FAILED}>
          <summary className="small soft">Last output</summary>
          <pre className="text-block" tabIndex={0}>
            {plugin.lastOutput.join('\n')}
          </pre>
        </details>
      )}
    </li>
  )
}

function restartPlugin(piped: Piped, name: string): void {
  ask({
    title: `Restart ${name} of ${piped.name}?`,
    text: <p>The plugin stops and starts again. Stages that it runs are continued, scripts go on.</p>,
    action: 'Restart the plugin',
    act: async () => {
      await pipeds.restartPlugin({ pipedId: piped.id, pluginName: name })
      toast(`${name} is restarted.`)
    },
  })
}

function listActions(item: Item, piped: Piped, session: Session, keyCount: number, onKey: (made: MadeKey) => void): MenuItem[] {
  const items: MenuItem[] = []
  const pipedId = piped.id
  if (session.can('WebService/RestartPiped') && piped.status === Piped_ConnectionStatus.ONLINE)
    items.push({
      label: 'Restart',
      icon: 'again',
      act: () =>
        ask({
          title: `Restart ${piped.name}?`,
          text: <p>The agent stops and is started again by whatever runs it. Deployments go on where they are.</p>,
          action: 'Restart the piped',
          act: async () => {
            await web.restartPiped({ pipedId })
            toast(`${piped.name} restarts.`)
          },
        }),
    })
  if (session.can('WebService/RecreatePipedKey'))
    items.push({
      label: 'Make a new key',
      icon: 'plus',
      act: () =>
        ask({
          title: `Make a new key for ${piped.name}?`,
          text: <p>The new key is shown once. The present one counts too, until you delete it: put the new one into the piped's configuration first.</p>,
          action: 'Make a new key',
          act: async () => {
            const { key } = await web.recreatePipedKey({ id: pipedId })
            onKey({ pipedId, name: piped.name, key, isNew: false })
          },
        }),
    })
  if (session.can('WebService/DeleteOldPipedKeys') && keyCount > 1)
    items.push({
      label: 'Delete the older key',
      icon: 'close',
      isDangerous: true,
      act: () =>
        ask({
          title: `Delete the older key of ${piped.name}?`,
          text: <p>Only the newest key counts from now on. A piped that still uses the older one cannot connect any more.</p>,
          action: 'Delete the older key',
          isDangerous: true,
          act: async () => {
            await web.deleteOldPipedKeys({ pipedId })
            toast('The older key counts no more.')
          },
        }),
    })
  if (session.can('WebService/DisablePiped'))
    items.push({
      label: piped.disabled ? 'Enable' : 'Disable',
      icon: piped.disabled ? 'check' : 'ban',
      act: () =>
        ask({
          title: `${piped.disabled ? 'Enable' : 'Disable'} ${piped.name}?`,
          text: <p>{piped.disabled ? 'It may connect again, and deploys.' : 'It may not connect any more: nothing of its applications is deployed until it is enabled.'}</p>,
          action: piped.disabled ? 'Enable' : 'Disable',
          isDangerous: !piped.disabled,
          act: async () => {
            if (piped.disabled) await web.enablePiped({ pipedId })
            else await web.disablePiped({ pipedId })
            toast(piped.disabled ? `${piped.name} is enabled.` : `${piped.name} is disabled.`)
          },
        }),
    })
  if (session.can('PipedService/DeletePiped') && piped.status !== Piped_ConnectionStatus.ONLINE)
    items.push({
      label: 'Delete',
      icon: 'close',
      isDangerous: true,
      act: () =>
        ask({
          title: `Delete ${piped.name}?`,
          text: <p>Its id and keys count no more. What it has deployed goes on running. This cannot be undone.</p>,
          action: 'Delete',
          isDangerous: true,
          typeToConfirm: piped.name,
          act: async () => {
            await pipeds.deletePiped({ pipedId: item.piped?.id ?? '' })
            toast(`${piped.name} is deleted.`)
          },
        }),
    })
  return items
}

function Add({ onClose, onMade }: { onClose: () => void; onMade: (made: MadeKey) => void }): ReactNode {
  const [name, setName] = useState('')
  const [desc, setDesc] = useState('')
  const [error, setError] = useState('')
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    try {
      const { id, key } = await web.registerPiped({ name: name.trim(), desc: desc.trim() })
      onClose()
      onMade({ pipedId: id, name: name.trim(), key, isNew: true })
    } catch (failure) {
      setError(explainShortly(failure))
    }
  }
  return (
    <Dialog title="Add a piped" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <label className="field">
          Name
          <input value={name} onChange={(event) => setName(event.target.value)} required autoFocus placeholder="where it runs, for example eu-production" />
        </label>
        <label className="field">
          <span>
            What it is for <small>(optional)</small>
          </span>
          <input value={desc} onChange={(event) => setDesc(event.target.value)} />
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
            Add
          </button>
        </div>
      </form>
    </Dialog>
  )
}

function ShowKey({ made, projectId, onClose }: { made: MadeKey; projectId: string; onClose: () => void }): ReactNode {
  const configuration = makeConfiguration(made, projectId)
  return (
    <Dialog title={made.isNew ? `${made.name} is added` : `A new key for ${made.name}`} onClose={onClose} isWide>
      <p>
        This key is shown <b>now and never again</b>. Keep it in a file that only the piped can read.
      </p>
      <div className="row">
        <code className="anywhere secret">{made.key}</code>
        <Copy text={made.key} what="the key" />
      </div>
      {made.isNew && (
        <>
          <div className="row">
            <h3>piped.yaml</h3>
            <Copy text={configuration} what="the configuration" />
          </div>
          <pre className="text-block" tabIndex={0}>
            {configuration}
          </pre>
          <p className="soft">
            Then start it: <code>piped run --config-file piped.yaml</code>. It shows here as online by itself.
          </p>
        </>
      )}
      <div className="buttons">
        <button type="button" className="primary" onClick={onClose}>
          I have kept the key
        </button>
      </div>
    </Dialog>
  )
}

function makeConfiguration(made: MadeKey, projectId: string): string {
  return `apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: ${projectId}
  pipedID: ${made.pipedId}
  pipedKeyFile: /etc/piped/piped.key
  apiAddress: ${location.host}
  repositories:
    - repoId: example
      remote: git@example.com:team/configs.git
      branch: main
  plugins:
    - name: wait
    - name: waitapproval
    - name: scriptrun
`
}
