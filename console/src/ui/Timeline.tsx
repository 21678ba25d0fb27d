// SPDX-License-Identifier: Apache-2.0
// What happened in a deployment, in its order: stages, and what people did.
import type { ReactNode } from 'react'
import type { Deployment } from '../api/gen/pipecd_wire/model/deployment_pb'
import { type DeploymentRecord, StageAction_Kind } from '../api/gen/pipecd_wire/pipecd/control/control_pb'
import { toSeconds } from '../lib/times'
import { findNote, type StageTimes } from '../model/stages'
import { isCompleted, showDeployment, showStage, type Tone } from '../model/status'
import { Panel, Time } from './basics'
import { Icon, type IconName } from './icons'

interface Entry {
  at: number
  /** Of entries of the same second. */
  order: number
  icon: IconName
  tone: Tone
  text: string
  detail: string
}

/** The order of the entry that it was created, which is the first. */
const CREATED = -1

const DID: Record<number, [string, IconName]> = {
  [StageAction_Kind.APPROVED]: ['approved', 'check'],
  [StageAction_Kind.SKIPPED]: ['skipped', 'skipped'],
  [StageAction_Kind.RETRIED]: ['ran again', 'again'],
  [StageAction_Kind.CANCELLED]: ['cancelled', 'stopped'],
  [StageAction_Kind.ROLLED_BACK]: ['rolled back', 'back'],
  [StageAction_Kind.OVERRIDDEN]: ['overrode the rules for', 'hand'],
}

export function Timeline({ deployment, record, times }: { deployment: Deployment; record: DeploymentRecord | undefined; times: Map<string, StageTimes> }): ReactNode {
  const entries = [...listStages(deployment, times), ...listActions(deployment, record), ...listEnds(deployment)]
  // A deployment is created later than the last one of its application, if need be by a second that has not passed yet.
  entries.sort((one, other) => Number(other.order === CREATED) - Number(one.order === CREATED) || one.at - other.at || one.order - other.order)
  return (
    <Panel title="Timeline">
      <ol className="timeline">
        {entries.map((entry, index) => (
          <li key={index}>
            <span className={entry.tone}>
              <Icon name={entry.icon} />
            </span>
            <div>
              <p className="anywhere">{entry.text}</p>
              {entry.detail && <p className="soft small anywhere">{entry.detail}</p>}
            </div>
            <span className="soft small">
              <Time at={entry.at} />
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  )
}

function listEnds(deployment: Deployment): Entry[] {
  const trigger = deployment.trigger
  const by = trigger?.commander ? `${trigger.commander} asked for it` : `${trigger?.commit?.author ?? 'Somebody'} committed`
  const begin: Entry = { at: Number(deployment.createdAt), order: CREATED, icon: 'git', tone: 'off', text: `Created: ${by}`, detail: trigger?.strategySummary ?? '' }
  if (!isCompleted(deployment.status)) return [begin]
  const shown = showDeployment(deployment.status)
  return [begin, { at: Number(deployment.completedAt), order: 1e6, icon: shown.icon, tone: shown.tone, text: `Deployment ${shown.word.toLowerCase()}`, detail: '' }]
}

function listStages(deployment: Deployment, times: Map<string, StageTimes>): Entry[] {
  return deployment.stages.flatMap((stage, index): Entry[] => {
    const { began = 0, ended = 0 } = times.get(stage.id) ?? {}
    if (!began) return []
    const shown = showStage(stage)
    return [
      {
        at: ended || began,
        order: index,
        icon: shown.icon,
        tone: shown.tone,
        text: ended ? `${stage.name} ${shown.word.toLowerCase()}` : `${stage.name} began`,
        detail: stage.statusReason || findNote(stage.metadata) || stage.desc,
      },
    ]
  })
}

function listActions(deployment: Deployment, record: DeploymentRecord | undefined): Entry[] {
  return (record?.actions ?? []).map((action): Entry => {
    const [word, icon] = DID[action.kind] ?? ['changed', 'person']
    const index = deployment.stages.findIndex((stage) => stage.id === action.stageId)
    const what = deployment.stages[index]?.name ?? 'the deployment'
    return { at: Math.floor(toSeconds(action.at)), order: index - 0.5, icon, tone: 'busy', text: `${action.by || 'Somebody'} ${word} ${what}`, detail: action.comment }
  })
}
