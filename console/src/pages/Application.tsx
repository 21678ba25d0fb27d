// SPDX-License-Identifier: Apache-2.0
// One application: how it is, what runs, what differs from git, what was deployed, and what can be done.
import { type ReactNode, useState } from 'react'
import { applications, pipeds, web } from '../api/clients'
import { type Application as Entity, ApplicationSyncStatus } from '../api/gen/pipecd_wire/model/application_pb'
import { SyncStrategy } from '../api/gen/pipecd_wire/model/common_pb'
import { DeploymentStatus } from '../api/gen/pipecd_wire/model/deployment_pb'
import type { ApplicationControl } from '../api/gen/pipecd_wire/pipecd/control/control_pb'
import { either, Kind, ofKinds, ofThing } from '../lib/concerns'
import { hasChanges } from '../lib/diff'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { type Session, useSession } from '../lib/session'
import { deleteApplication, deploy, freeze, liftFreeze, releaseHold, releasePin, switchApplication } from '../model/applicationActions'
import { showSync, showSyncOf } from '../model/status'
import { Copy, DiffView, ErrorBox, Hash, Labels, Loading, Menu, type MenuItem, Panel, Status, Time, useTitle } from '../ui/basics'
import { EditApplication } from '../ui/EditApplication'
import { Icon } from '../ui/icons'
import { LiveTree } from '../ui/LiveTree'
import { chooseRollBack } from '../ui/RollBack'
import { DeploymentList } from './Deployments'

export function Application({ id }: { id: string }): ReactNode {
  const session = useSession()
  const { data, error, again } = useQuery(`application/${id}`, () => web.getApplication({ applicationId: id }), ofThing(id, Kind.APPLICATION, Kind.CONTROL))
  const control = useQuery(`control/${id}`, () => applications.getApplicationControl({ applicationId: id }), ofThing(id, Kind.CONTROL)).data?.control
  const application = data?.application
  useTitle(application?.name ?? 'Application')
  const [search] = useSearch()
  if (!application) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={6} />
  const tab = search.get('tab') === 'history' ? 'history' : 'now'
  return (
    <div className="stack wide">
      <Head application={application} control={control} session={session} />
      <Controls application={application} control={control} session={session} />
      <nav className="tabs" aria-label="Parts of the application">
        <Link to={`/applications/${id}`} aria-current={tab === 'now' ? 'page' : undefined}>
          Now
        </Link>
        <Link to={`/applications/${id}?tab=history`} aria-current={tab === 'history' ? 'page' : undefined}>
          History
        </Link>
      </nav>
      {tab === 'now' ? <Now application={application} /> : <History application={application} session={session} />}
    </div>
  )
}

interface PartProps {
  application: Entity
  control: ApplicationControl | undefined
  session: Session
}

function Head({ application, control, session }: PartProps): ReactNode {
  const sync = showSyncOf(application)
  return (
    <div className="head">
      <div className="stack">
        <nav className="crumbs" aria-label="Where this is">
          <Link to="/applications">Applications</Link>
          <span aria-hidden="true">/</span>
          <span>{application.name}</span>
        </nav>
        <h1>{application.name}</h1>
        <div className="row">
          <Status shown={sync} pill />
          {application.disabled && <Status shown={{ word: 'Disabled', icon: 'ban', tone: 'off' }} pill />}
          <Labels labels={application.labels} />
        </div>
        {application.description && <p className="soft anywhere">{application.description}</p>}
      </div>
      <Actions application={application} control={control} session={session} />
    </div>
  )
}

function Actions({ application, control, session }: PartProps): ReactNode {
  const labels = application.labels
  const mayDeploy = session.can('ApplicationService/SyncApplication', labels) && !application.disabled
  const mayUpdate = session.can('WebService/DisableApplication', labels)
  const last = application.mostRecentlySuccessfulDeployment
  const [isEditing, setEditing] = useState(false)
  const items: MenuItem[] = []
  if (mayDeploy) {
    items.push({ label: 'Deploy at once (quick sync)', icon: 'deploys', act: () => deploy(application, SyncStrategy.QUICK_SYNC) })
    items.push({ label: 'Deploy through the pipeline', icon: 'deploys', act: () => deploy(application, SyncStrategy.PIPELINE) })
  }
  if (session.can('ApplicationService/SetFreeze', labels) && !control?.freeze) items.push({ label: 'Freeze', icon: 'snow', act: () => freeze(application) })
  if (session.can('WebService/UpdateApplication', labels) && session.can('PipedService/ListPipeds')) items.push({ label: 'Change its piped, targets or file', icon: 'settings', act: () => setEditing(true) })
  if (mayUpdate) items.push({ label: application.disabled ? 'Enable' : 'Disable', icon: application.disabled ? 'check' : 'ban', act: () => switchApplication(application) })
  if (session.can('WebService/DeleteApplication', labels)) items.push({ label: 'Delete', icon: 'close', isDangerous: true, act: () => deleteApplication(application) })
  return (
    <div className="row">
      {mayDeploy && (
        <button type="button" className="primary" onClick={() => deploy(application, SyncStrategy.AUTO)}>
          <Icon name="deploys" /> Deploy
        </button>
      )}
      {last && session.can('ApplicationService/RollBackApplication', labels) && !application.disabled && (
        <Link className="button" to={`/applications/${application.id}?tab=history`}>
          <Icon name="back" /> Roll back
        </Link>
      )}
      <Menu label={`More for ${application.name}`} items={items} />
      {isEditing && <EditApplication application={application} onClose={() => setEditing(false)} />}
    </div>
  )
}

function Controls({ application, control, session }: PartProps): ReactNode {
  const may = (method: string): boolean => session.can(`ApplicationService/${method}`, application.labels)
  return (
    <>
      {control?.hold && (
        <div className="notice wait">
          <h2 className="status wait">
            <Icon name="hand" /> Held
          </h2>
          <p className="anywhere">
            <Hash hash={control.hold.commitHash} /> failed <Time at={control.hold.since} /> and is not deployed again by itself: {control.hold.reason}
          </p>
          <div className="row">
            {may('ReleaseHold') && (
              <button type="button" onClick={() => releaseHold(application)}>
                Deploy it again
              </button>
            )}
            <Link to={`/deployments/${control.hold.deploymentId}`}>Open the deployment that failed</Link>
          </div>
        </div>
      )}
      {control?.pin && (
        <div className="notice wait">
          <h2 className="status wait">
            <Icon name="pin" /> Pinned
          </h2>
          <p className="anywhere">
            {control.pin.by} rolled it back to <Hash hash={control.pin.commitHash} /> <Time at={control.pin.since} />. Newer commits wait. {control.pin.reason}
          </p>
          {may('ReleasePin') && (
            <div>
              <button type="button" onClick={() => releasePin(application)}>
                Release the pin
              </button>
            </div>
          )}
        </div>
      )}
      {control?.freeze && (
        <div className="notice wait">
          <h2 className="status wait">
            <Icon name="snow" /> Frozen
          </h2>
          <p className="anywhere">
            {control.freeze.by} froze it <Time at={control.freeze.since} />: {control.freeze.reason || 'without a reason'}
          </p>
          {may('SetFreeze') && (
            <div>
              <button type="button" onClick={() => liftFreeze(application)}>
                Lift the freeze
              </button>
            </div>
          )}
        </div>
      )}
      <SyncReason application={application} />
    </>
  )
}

function SyncReason({ application }: { application: Entity }): ReactNode {
  const state = application.syncState
  if (!state || state.status === ApplicationSyncStatus.SYNCED || state.status === ApplicationSyncStatus.DEPLOYING) return null
  const shown = showSync(state.status)
  if (!state.shortReason && !state.reason) return null
  const isDiff = hasChanges(state.reason)
  return (
    <section className={`notice ${shown.tone}`} aria-label="Why it is not in sync" data-sync={ApplicationSyncStatus[state.status]}>
      <h2 className={`status ${shown.tone}`}>
        <Icon name={shown.icon} /> {shown.word}
      </h2>
      {state.shortReason && <p className="anywhere prewrap">{state.shortReason}</p>}
      {isDiff ? (
        <details open>
          <summary>What differs (- runs, + in git)</summary>
          <DiffView text={state.reason} />
        </details>
      ) : (
        state.reason !== state.shortReason && state.reason && (
          <pre className="text-block" tabIndex={0}>
            {state.reason}
          </pre>
        )
      )}
    </section>
  )
}

function Now({ application }: { application: Entity }): ReactNode {
  return (
    <div className="grid-2">
      <LiveTree applicationId={application.id} labels={application.labels} />
      <div className="stack">
        <Newest application={application} />
        <Facts application={application} />
      </div>
    </div>
  )
}

function Newest({ application }: { application: Entity }): ReactNode {
  const successful = application.mostRecentlySuccessfulDeployment
  const triggered = application.mostRecentlyTriggeredDeployment
  return (
    <Panel title="Deployed">
      <div className="body">
        <dl className="facts">
          <dt>Runs</dt>
          <dd>
            {successful ? (
              <>
                <Hash hash={successful.trigger?.commit?.hash ?? ''} url={successful.trigger?.commit?.url ?? ''} /> {successful.trigger?.commit?.message.split('\n')[0]}
                <div className="soft small">
                  {successful.trigger?.commander || successful.trigger?.commit?.author}, <Time at={successful.completedAt} />, <Link to={`/deployments/${successful.deploymentId}`}>open</Link>
                </div>
              </>
            ) : (
              'nothing yet'
            )}
          </dd>
          {triggered && triggered.deploymentId !== successful?.deploymentId && (
            <>
              <dt>Newest</dt>
              <dd>
                <Hash hash={triggered.trigger?.commit?.hash ?? ''} /> {triggered.trigger?.commit?.message.split('\n')[0]}
                <div className="soft small">
                  <Link to={`/deployments/${triggered.deploymentId}`}>open</Link>
                </div>
              </dd>
            </>
          )}
          {successful?.versions.map((version, index) => (
            <div className="contents" key={index}>
              <dt>{version.name || 'Version'}</dt>
              <dd>{version.version}</dd>
            </div>
          ))}
        </dl>
      </div>
    </Panel>
  )
}

function Facts({ application }: { application: Entity }): ReactNode {
  const session = useSession()
  const piped = useQuery(session.can('PipedService/ListPipeds') ? 'pipeds' : undefined, () => pipeds.listPipeds({}), either(ofKinds(Kind.PIPED))).data?.pipeds.find((each) => each.piped?.id === application.pipedId)?.piped
  const targets = Object.entries(application.deployTargetsByPlugin).flatMap(([plugin, found]) => found.deployTargets.map((target) => `${target} (${plugin})`))
  return (
    <Panel title="Facts">
      <div className="body">
        <dl className="facts">
          <dt>Piped</dt>
          <dd>{piped?.name ?? application.pipedId}</dd>
          {targets.length > 0 && (
            <>
              <dt>Targets</dt>
              <dd>{targets.join(', ')}</dd>
            </>
          )}
          <dt>Repository</dt>
          <dd>
            {application.gitPath?.repo?.id} <code>{application.gitPath?.repo?.branch}</code>
          </dd>
          <dt>File</dt>
          <dd>
            <code>
              {application.gitPath?.path}/{application.gitPath?.configFilename}
            </code>
          </dd>
          <dt>Added</dt>
          <dd>
            <Time at={application.createdAt} />
          </dd>
          <dt>Id</dt>
          <dd>
            <code>{application.id}</code> <Copy text={application.id} what="the id" />
          </dd>
        </dl>
      </div>
    </Panel>
  )
}

function History({ application, session }: { application: Entity; session: Session }): ReactNode {
  const mayRollBack = session.can('ApplicationService/RollBackApplication', application.labels) && !application.disabled
  const current = application.mostRecentlySuccessfulDeployment?.deploymentId
  return (
    <DeploymentList
      options={{ statuses: [], applicationIds: [application.id] }}
      isFiltered={false}
      rowActions={(deployment) => {
        if (deployment.id === current) return <Status shown={{ word: 'Runs now', icon: 'check', tone: 'good' }} />
        if (deployment.status !== DeploymentStatus.DEPLOYMENT_SUCCESS || !mayRollBack) return null
        return (
          <button type="button" onClick={() => chooseRollBack({ applicationId: application.id, applicationName: application.name, deploymentId: deployment.id })}>
            <Icon name="back" /> Roll back to this
          </button>
        )
      }}
    />
  )
}
