// SPDX-License-Identifier: Apache-2.0
// One deployment: its pipeline, what it waits for, the log of each stage, who did what.
import { lazy, type ReactNode, Suspense, useMemo } from 'react'
import { deployments, web } from '../api/clients'
import type { Wait } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import { Wait_Kind } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import type { Deployment as Entity, PipelineStage } from '../api/gen/pipecd_wire/model/deployment_pb'
import { DeploymentStatus, StageStatus } from '../api/gen/pipecd_wire/model/deployment_pb'
import { DeploymentRecord_Type, type DeploymentRecord } from '../api/gen/pipecd_wire/pipecd/control/control_pb'
import { either, Kind, ofKinds, ofThing } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { deploymentOf } from '../lib/reads'
import { Link, useSearch } from '../lib/router'
import { type Session, useSession } from '../lib/session'
import { approve, cancel, overrideRules, retry, rollBackOpen, skip } from '../model/actions'
import { findInteresting, findTimes, hasAnalysis } from '../model/stages'
import { canBeSkipped, isCompleted, showDeployment, waitsForApproval, WAITING } from '../model/status'
import { capitalise, ErrorBox, Hash, Labels, Loading, Menu, type MenuItem, Panel, Status, Time, Took, useTitle } from '../ui/basics'
import { Changes } from '../ui/Changes'
import { Icon } from '../ui/icons'
import { LogView } from '../ui/LogView'
import { PipelineGraph } from '../ui/PipelineGraph'
import { Timeline } from '../ui/Timeline'
import { chooseRollBack } from '../ui/RollBack'

const AnalysisView = lazy(async () => ({ default: (await import('../ui/AnalysisView')).AnalysisView }))

export function Deployment({ id }: { id: string }): ReactNode {
  const session = useSession()
  const wanted = deploymentOf(id)
  const { data, error, again } = useQuery(wanted.key, wanted.read, ofThing(id, Kind.DEPLOYMENT))
  const deployment = data?.deployment
  const record = useQuery(
    `record/${id}`,
    () => deployments.getDeploymentRecord({ deploymentId: id }),
    ofThing(id, Kind.RECORD, Kind.DEPLOYMENT),
  ).data?.record
  const isOpen = deployment !== undefined && !isCompleted(deployment.status)
  const waits = useQuery(
    isOpen ? `waits/${id}` : undefined,
    () => deployments.explainWait({ deploymentId: id }),
    either(ofKinds(Kind.DEPLOYMENT, Kind.QUEUE, Kind.PIPED, Kind.RULES), ofThing(id, Kind.RECORD)),
  ).data?.waitsFor
  useTitle(deployment ? `${deployment.applicationName}: ${showDeployment(deployment.status).word}` : 'Deployment')
  if (!deployment) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={6} />
  return (
    <div className="stack wide">
      <Head deployment={deployment} record={record} session={session} waits={waits ?? []} />
      {isOpen && <Waits waits={waits ?? []} deployment={deployment} session={session} />}
      <Content deployment={deployment} record={record} session={session} />
    </div>
  )
}

interface HeadProps {
  deployment: Entity
  record: DeploymentRecord | undefined
  session: Session
  waits: Wait[]
}

function Head({ deployment, record, session, waits }: HeadProps): ReactNode {
  const commit = deployment.trigger?.commit
  const waitsForPerson = deployment.stages.some(waitsForApproval)
  const shown = waitsForPerson && deployment.status === DeploymentStatus.DEPLOYMENT_RUNNING ? WAITING : showDeployment(deployment.status)
  const [title = '', ...rest] = (commit?.message ?? '').split('\n')
  const isRollBack = record?.type === DeploymentRecord_Type.ROLL_BACK
  return (
    <>
      <div className="head">
        <div className="stack">
          <nav className="crumbs" aria-label="Where this is">
            <Link to="/applications">Applications</Link>
            <span aria-hidden="true">/</span>
            <Link to={`/applications/${deployment.applicationId}`}>{deployment.applicationName}</Link>
            <span aria-hidden="true">/</span>
            <span>Deployment</span>
          </nav>
          <div className="row">
            <h1>{title || deployment.summary || 'Deployment'}</h1>
          </div>
          <div className="row">
            <span data-status={DeploymentStatus[deployment.status]}>
              <Status shown={shown} pill />
            </span>
            {isRollBack && <Status shown={{ word: 'Roll-back', icon: 'back', tone: 'off' }} pill />}
            <span className="soft">
              <Time at={deployment.createdAt} />, {deployment.completedAt ? 'took' : 'for'} <Took from={deployment.createdAt} to={deployment.completedAt} />
            </span>
            <span className="soft">
              {commit && <Hash hash={commit.hash} url={commit.url} />} on <code>{commit?.branch}</code> by {deployment.trigger?.commander || commit?.author}
            </span>
            <Labels labels={deployment.labels} />
          </div>
        </div>
        <Actions deployment={deployment} session={session} waits={waits} />
      </div>
      {rest.join('\n').trim() && <p className="commit-body anywhere">{rest.join('\n').trim()}</p>}
      {isRollBack && record?.reason && (
        <div className="notice">
          <p>
            <b>{record.by}</b> brought it back: {record.reason}
          </p>
        </div>
      )}
      {deployment.statusReason && isCompleted(deployment.status) && deployment.status !== DeploymentStatus.DEPLOYMENT_SUCCESS && (
        <div className={`notice ${shown.tone}`}>
          <p className="anywhere">{deployment.statusReason}</p>
        </div>
      )}
    </>
  )
}

function Actions({ deployment, session, waits }: { deployment: Entity; session: Session; waits: Wait[] }): ReactNode {
  const may = (method: string): boolean => session.can(`DeploymentService/${method}`, deployment.labels)
  const isOpen = !isCompleted(deployment.status)
  const decision = waits.find((wait) => wait.kind === Wait_Kind.DECISION && wait.deploymentId === deployment.id)
  const rule = waits.find((wait) => wait.kind === Wait_Kind.RULE && wait.deploymentId === deployment.id)
  const application = useQuery(`application/${deployment.applicationId}`, () => web.getApplication({ applicationId: deployment.applicationId }), ofThing(deployment.applicationId, Kind.APPLICATION, Kind.CONTROL)).data?.application
  const isEarlierVersion = deployment.status === DeploymentStatus.DEPLOYMENT_SUCCESS && application !== undefined && !application.disabled && application.mostRecentlySuccessfulDeployment?.deploymentId !== deployment.id
  const items: MenuItem[] = []
  if (isOpen && may('CancelDeployment')) {
    items.push({ label: 'Cancel', icon: 'stopped', isDangerous: true, act: () => cancel(deployment, 'as configured') })
    if (deployment.status !== DeploymentStatus.DEPLOYMENT_PENDING) {
      items.push({ label: 'Cancel and roll back', icon: 'back', isDangerous: true, act: () => cancel(deployment, 'roll back') })
      items.push({ label: 'Cancel, leave things as they are', icon: 'ban', isDangerous: true, act: () => cancel(deployment, 'leave') })
    }
  }
  if (rule && session.can('WindowService/OverrideRules')) items.push({ label: 'Begin in spite of the rules', icon: 'hand', act: () => overrideRules(deployment) })
  const approvals = deployment.stages.filter(waitsForApproval)
  const mayApprove = may('ApproveStage') && waits.some((wait) => wait.kind === Wait_Kind.APPROVAL && wait.isForCaller)
  return (
    <div className="row action-bar">
      {mayApprove &&
        approvals.map((stage) => (
          <button type="button" className="primary" key={stage.id} onClick={() => approve(deployment, stage)}>
            <Icon name="check" /> Approve
          </button>
        ))}
      {deployment.stages.filter(canBeSkipped).map(
        (stage) =>
          may('SkipStage') && (
            <button type="button" key={stage.id} onClick={() => skip(deployment, stage)}>
              <Icon name="skipped" /> Skip {stage.name}
            </button>
          ),
      )}
      {decision?.isForCaller && may('RetryStage') && (
        <button type="button" className="primary" onClick={() => retry(deployment, decision.stageId)}>
          <Icon name="again" /> Retry
        </button>
      )}
      {decision?.isForCaller && may('RollBackDeployment') && (
        <button type="button" onClick={() => rollBackOpen(deployment)}>
          <Icon name="back" /> Roll back now
        </button>
      )}
      {isEarlierVersion && session.can('ApplicationService/RollBackApplication', deployment.labels) && (
        <button type="button" onClick={() => chooseRollBack({ applicationId: deployment.applicationId, applicationName: deployment.applicationName, deploymentId: deployment.id })}>
          <Icon name="back" /> Roll back to this
        </button>
      )}
      {items.length === 1 && items[0] ? (
        <button type="button" className="danger" onClick={items[0].act}>
          {items[0].label}
        </button>
      ) : (
        <Menu label="Cancel and more" text="Cancel" items={items} />
      )}
    </div>
  )
}

const PERSON_KINDS = new Set([Wait_Kind.APPROVAL, Wait_Kind.DECISION])

function Waits({ waits, deployment, session }: { waits: Wait[]; deployment: Entity; session: Session }): ReactNode {
  if (waits.length === 0) return null
  return (
    <section className="notice wait" aria-label="What it waits for">
      <h2 className="status wait">
        <Icon name="paused" /> {PERSON_KINDS.has(waits[0]?.kind ?? 0) ? 'Waits for a person' : 'Waits'}
      </h2>
      <ul className="stack">
        {waits.map((wait, index) => {
          const stage = deployment.stages.find((each) => each.id === wait.stageId)
          const approvers = wait.kind === Wait_Kind.APPROVAL ? (stage?.authorizedOperators ?? []) : []
          return (
            <li key={index}>
              <p className="anywhere">
                {capitalise(wait.sentence)}
                {wait.until && (
                  <>
                    {' '}
                    (until <Time at={wait.until} />)
                  </>
                )}
                {wait.otherDeploymentId && (
                  <>
                    {' '}
                    <Link to={`/deployments/${wait.otherDeploymentId}`}>Open that deployment</Link>
                  </>
                )}
              </p>
              {approvers.length > 0 && <p className="soft small">Who may approve: {approvers.join(', ')}</p>}
              {wait.hint && !isOffered(wait, session, deployment) && <p className="soft small anywhere">{capitalise(wait.hint)}</p>}
            </li>
          )
        })}
      </ul>
    </section>
  )
}

/** Is there a button for what the hint says? */
function isOffered(wait: Wait, session: Session, deployment: Entity): boolean {
  const method = wait.kind === Wait_Kind.APPROVAL ? 'ApproveStage' : wait.kind === Wait_Kind.DECISION ? 'RetryStage' : undefined
  return method !== undefined && wait.isForCaller && session.can(`DeploymentService/${method}`, deployment.labels)
}

function Content({ deployment, record, session }: { deployment: Entity; record: DeploymentRecord | undefined; session: Session }): ReactNode {
  const [search, setSearch] = useSearch()
  const times = useMemo(() => findTimes(deployment.stages), [deployment.stages])
  const wanted = search.get('stage') ?? ''
  const chosen = deployment.stages.find((stage) => stage.id === wanted) ?? deployment.stages.find((stage) => stage.id === findInteresting(deployment.stages))
  const wantedAttempt = search.get('attempt')
  const attempt = chosen ? Math.min(wantedAttempt === null ? chosen.retriedCount : Number(wantedAttempt) || 0, chosen.retriedCount) : 0
  const log = useMemo(() => (chosen ? { deploymentId: deployment.id, stageId: chosen.id, attempt } : undefined), [deployment.id, chosen?.id, attempt])
  function choose(stage: PipelineStage): void {
    setSearch({ stage: stage.id, attempt: '' }, { hash: '' })
  }
  return (
    <>
      <PipelineGraph stages={deployment.stages} times={times} chosenId={chosen?.id} onChoose={choose} />
      <div className="grid-2">
        <div className="stack">
          {chosen && attempt === chosen.retriedCount && hasAnalysis(chosen.metadata) && (
            <Suspense fallback={<Loading lines={6} />}>
              <AnalysisView key={chosen.id} stage={chosen} />
            </Suspense>
          )}
          {chosen && log && (
            <LogView
              log={log}
              isOpen={chosen.status <= StageStatus.STAGE_RUNNING && !isCompleted(deployment.status)}
              stageName={chosen.name}
              actions={chosen.retriedCount > 0 && <Attempts count={chosen.retriedCount} at={attempt} onChoose={(next) => setSearch({ stage: chosen.id, attempt: String(next) }, { hash: '' })} />}
            />
          )}
          {session.can('DeploymentService/GetDeploymentDiff', deployment.labels) && <Changes deployment={deployment} />}
          {deployment.stages.length === 0 && (
            <Panel title="Pipeline">
              <div className="body">
                <p className="soft">It is not planned yet: its stages show here as soon as its piped has planned them.</p>
              </div>
            </Panel>
          )}
        </div>
        <div className="stack">
          <Timeline deployment={deployment} record={record} times={times} />
          <Facts deployment={deployment} session={session} />
        </div>
      </div>
    </>
  )
}

function Attempts({ count, at, onChoose }: { count: number; at: number; onChoose: (attempt: number) => void }): ReactNode {
  return (
    <select aria-label="Attempt" value={at} onChange={(event) => onChoose(Number(event.target.value))}>
      {Array.from({ length: count + 1 }, (_, index) => (
        <option key={index} value={index}>
          Attempt {index + 1}
        </option>
      ))}
    </select>
  )
}

function Facts({ deployment }: { deployment: Entity; session: Session }): ReactNode {
  const targets = Object.entries(deployment.deployTargetsByPlugin).flatMap(([plugin, found]) => found.deployTargets.map((target) => `${target} (${plugin})`))
  return (
    <Panel title="Facts">
      <div className="body">
        <dl className="facts">
          <dt>Strategy</dt>
          <dd>{deployment.summary || deployment.trigger?.strategySummary || '-'}</dd>
          {deployment.versions.length > 0 && (
            <>
              <dt>Versions</dt>
              <dd>
                {deployment.versions.map((version, index) => (
                  <div key={index}>
                    {version.name} {version.version}
                  </div>
                ))}
              </dd>
            </>
          )}
          {targets.length > 0 && (
            <>
              <dt>Targets</dt>
              <dd>{targets.join(', ')}</dd>
            </>
          )}
          {deployment.runningCommitHash && (
            <>
              <dt>Ran before</dt>
              <dd>
                <Hash hash={deployment.runningCommitHash} />
              </dd>
            </>
          )}
          {deployment.deploymentChainId && (
            <>
              <dt>Chain</dt>
              <dd>block {deployment.deploymentChainBlockIndex + 1}</dd>
            </>
          )}
          <dt>File</dt>
          <dd>
            <code>
              {deployment.gitPath?.path}/{deployment.gitPath?.configFilename}
            </code>
          </dd>
          <dt>Id</dt>
          <dd>
            <code>{deployment.id}</code>
          </dd>
        </dl>
      </div>
    </Panel>
  )
}
