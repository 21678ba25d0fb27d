// SPDX-License-Identifier: Apache-2.0
// What is broken, what waits for me, what runs, what changed: readable at a glance.
import type { ReactNode } from 'react'
import { type BrokenApplication, type DeploymentBrief, type WaitingDeployment, WaitingDeployment_Cause } from '../api/gen/pipecd_wire/pipecd/api/overview_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { OVERVIEW } from '../lib/reads'
import { Link } from '../lib/router'
import { type Shown, showDeployment, type Tone } from '../model/status'
import { capitalise, Command, Empty, ErrorBox, Hash, Loading, Panel, Status, Time, Took, useTitle } from '../ui/basics'
import { Icon, type IconName } from '../ui/icons'

const WAITING_FOR_PERSON: Shown = { word: 'Waits', icon: 'paused', tone: 'wait' }
const CONCERN = ofKinds(Kind.APPLICATION, Kind.DEPLOYMENT, Kind.PIPED, Kind.CONTROL, Kind.RULES)

export function Home(): ReactNode {
  useTitle('')
  const { data, error, again } = useQuery(OVERVIEW.key, OVERVIEW.read, CONCERN)
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={8} />
  if (data.applicationCount === 0n && data.disabledApplicationCount === 0n) return <Welcome hasPiped={data.pipedCount > 0n} />
  const waiting = new Set([...data.waitingForMe, ...data.waitingForOthers].map((each) => each.deployment?.id))
  return (
    <div className="stack wide">
      <h1 className="hidden-text">Home</h1>
      <div className="figures">
        <Figure to="/applications?status=FAILED" icon="failed" tone={data.brokenCount ? 'bad' : 'good'} count={data.brokenCount} name="broken" />
        <Figure to="/deployments?status=open" icon="paused" tone={data.waitingForMeCount ? 'wait' : 'off'} count={data.waitingForMeCount} name={data.waitingForMeCount === 1n ? 'waits for me' : 'wait for me'} />
        <Figure to="/deployments?status=open" icon="busy" tone={data.runningCount ? 'busy' : 'off'} count={data.runningCount} name="in progress" />
        <Figure to="/applications?sync=OUT_OF_SYNC" icon="differs" tone={data.outOfSyncCount ? 'wait' : 'off'} count={data.outOfSyncCount} name="out of sync" />
        <Figure to="/applications" icon="apps" tone="off" count={data.applicationCount} name={data.applicationCount === 1n ? 'application' : 'applications'} />
      </div>
      {data.offlinePipedNames.length > 0 && (
        <div className="notice bad">
          <Status shown={{ word: data.offlinePipedNames.length === 1 ? 'A piped is offline' : 'Pipeds are offline', icon: 'unplugged', tone: 'bad' }} />
          <p>{data.offlinePipedNames.join(', ')}: nothing of theirs is deployed until they are back.</p>
        </div>
      )}
      <div className="home-grid">
        <div className="stack wide">
          <Section title="Broken" count={data.brokenCount} shown={data.broken.length} more="/applications?status=FAILED" empty="Nothing is broken." icon="check">
            {data.broken.map((each) => (
              <Broken key={each.applicationId} broken={each} />
            ))}
          </Section>
          <Section title="Waiting for me" count={data.waitingForMeCount} shown={data.waitingForMe.length} more="/deployments?status=open" empty="Nothing waits for you." icon="check">
            {data.waitingForMe.map((each) => (
              <Waiting key={each.deployment?.id} waiting={each} />
            ))}
          </Section>
          {data.waitingForOthersCount > 0n && (
            <Section title="Waiting for others" count={data.waitingForOthersCount} shown={data.waitingForOthers.length} more="/deployments?status=open" empty="" icon="check">
              {data.waitingForOthers.map((each) => (
                <Waiting key={each.deployment?.id} waiting={each} />
              ))}
            </Section>
          )}
        </div>
        <div className="stack wide">
          <Section title="In progress" count={data.runningCount} shown={data.running.length} more="/deployments?status=open" empty="Nothing runs now." icon="notyet">
            {data.running.map((each) => (
              <Brief key={each.id} brief={each} isOpen isWaiting={waiting.has(each.id)} />
            ))}
          </Section>
          <Section title="Changed in the last day" count={data.changedCount} shown={data.changed.length} more="/deployments" empty="Nothing was deployed in the last day." icon="notyet">
            {data.changed.map((each) => (
              <Brief key={each.id} brief={each} />
            ))}
          </Section>
        </div>
      </div>
    </div>
  )
}

function Figure({ to, icon, tone, count, name }: { to: string; icon: IconName; tone: Tone; count: bigint; name: string }): ReactNode {
  return (
    <Link to={to} className="panel figure">
      <b>{count.toLocaleString('en')}</b>
      <span className={`status ${tone}`}>
        <Icon name={icon} /> {name}
      </span>
    </Link>
  )
}

function Section({ title, count, shown, more, empty, icon, children }: { title: string; count: bigint; shown: number; more: string; empty: string; icon: IconName; children: ReactNode }): ReactNode {
  return (
    <Panel title={title} count={count > 0n ? count.toLocaleString('en') : undefined}>
      {count === 0n ? (
        <p className="quiet soft">
          <Icon name={icon} /> {empty}
        </p>
      ) : (
        <ul className="list">{children}</ul>
      )}
      {Number(count) > shown && (
        <footer>
          <Link to={more}>Show all {count.toLocaleString('en')}</Link>
        </footer>
      )}
    </Panel>
  )
}

/** The address of the log of the stage that matters now. */
function linkToStage(brief: DeploymentBrief): string {
  return `/deployments/${brief.id}${brief.stageId ? `?stage=${encodeURIComponent(brief.stageId)}` : ''}`
}

function Broken({ broken }: { broken: BrokenApplication }): ReactNode {
  const deployment = broken.deployment
  return (
    <li>
      <div className="row">
        <Status shown={{ word: 'Failed', icon: 'failed', tone: 'bad' }}>
          <Link to={deployment ? linkToStage(deployment) : `/applications/${broken.applicationId}`} className="bad strong">
            {broken.applicationName}
          </Link>
        </Status>
        {broken.isHeld && <Status shown={{ word: 'Held', icon: 'hand', tone: 'wait' }} pill />}
        <span className="soft small push">
          <Time at={broken.since} />
        </span>
      </div>
      <p className="anywhere clamp">{capitalise(broken.sentence)}</p>
      <div className="row small">
        {deployment && <Link to={linkToStage(deployment)}>{deployment.stageName ? `Log of ${deployment.stageName}` : 'Open the deployment'}</Link>}
        <Link to={`/applications/${broken.applicationId}`}>Open the application</Link>
      </div>
    </li>
  )
}

function Waiting({ waiting }: { waiting: WaitingDeployment }): ReactNode {
  const deployment = waiting.deployment
  if (!deployment) return null
  const isApproval = waiting.cause === WaitingDeployment_Cause.APPROVAL
  return (
    <li>
      <div className="row">
        <Status shown={{ word: '', icon: isApproval ? 'paused' : 'hand', tone: 'wait' }}>
          <Link to={linkToStage(deployment)} className="wait strong">
            {deployment.applicationName}
          </Link>
        </Status>
        <span className="soft small push">
          <Time at={waiting.since} />
        </span>
      </div>
      <p className="anywhere clamp">{capitalise(waiting.sentence)}</p>
      <p className="soft small cut">
        <Hash hash={deployment.commitHash} /> {deployment.commitMessage}
      </p>
    </li>
  )
}

function Brief({ brief, isOpen = false, isWaiting = false }: { brief: DeploymentBrief; isOpen?: boolean; isWaiting?: boolean }): ReactNode {
  const shown = isWaiting ? WAITING_FOR_PERSON : showDeployment(brief.status)
  return (
    <li>
      <div className="row">
        <Status shown={shown} />
        <Link to={`/deployments/${brief.id}`} className="strong">
          {brief.applicationName}
        </Link>
        <span className="soft small push">{isOpen ? <Took from={brief.createdAt} to={0} /> : <Time at={brief.completedAt} />}</span>
      </div>
      <p className="soft small cut">
        {isOpen && brief.stages > 0 && (
          <>
            {brief.stagesDone} of {brief.stages} stages{brief.stageName && `, now ${brief.stageName}`} ·{' '}
          </>
        )}
        <Hash hash={brief.commitHash} /> {brief.commitMessage} · {brief.triggeredBy}
      </p>
    </li>
  )
}

function Welcome({ hasPiped }: { hasPiped: boolean }): ReactNode {
  return (
    <div className="panel">
      <Empty title={hasPiped ? 'There is no application yet' : 'There is no piped yet'}>
        {hasPiped ? (
          <>
            <p>Commit an application file to a repository that a piped watches, then add it:</p>
            <Command text="pipectl application add --help" />
          </>
        ) : (
          <>
            <p>A piped is the agent that deploys. Register one, then start it next to what it deploys to:</p>
            <Command text="pipectl piped register --name NAME" />
          </>
        )}
      </Empty>
    </div>
  )
}
