// SPDX-License-Identifier: Apache-2.0
// What the stages of a deployment tell that no field of theirs says.
import { type PipelineStage, StageStatus } from '../api/gen/pipecd_wire/model/deployment_pb'

export interface StageTimes {
  /** Unix seconds; 0 when it has not begun. */
  began: number
  /** 0 while it is not over. */
  ended: number
}

type TimedStage = Pick<PipelineStage, 'id' | 'status' | 'requires' | 'rollback' | 'completedAt' | 'updatedAt' | 'createdAt'>

/** When each stage began and ended.
 *
 * A stage keeps one time: while it runs when it began, afterwards when it ended. Stages follow each other at once, so a
 * stage that is over began when the last one that it required ended.
 */
export function findTimes(stages: readonly TimedStage[]): Map<string, StageTimes> {
  const times = new Map<string, StageTimes>()
  const forward = stages.filter((stage) => !stage.rollback)
  const rollback = stages.filter((stage) => stage.rollback)
  for (const stage of forward) times.set(stage.id, findOne(stage, (id) => times.get(id)?.ended ?? 0))
  let before = Math.max(0, ...[...times.values()].map((each) => each.ended))
  for (const stage of rollback) {
    const found = findOne(stage, () => before)
    times.set(stage.id, found)
    before = Math.max(before, found.ended)
  }
  return times
}

function findOne(stage: TimedStage, endOf: (id: string) => number): StageTimes {
  if (stage.status === StageStatus.STAGE_NOT_STARTED_YET) return { began: 0, ended: 0 }
  const moment = Number(stage.completedAt) || Number(stage.updatedAt)
  if (stage.status === StageStatus.STAGE_RUNNING) return { began: moment, ended: 0 }
  const before = stage.rollback ? [endOf('')] : stage.requires.map(endOf)
  const began = Math.max(...before, 0) || Number(stage.createdAt)
  return { began: Math.min(began, moment), ended: moment }
}

/** The stage whose log is looked at first: what failed, else what runs, else the last that was over. */
export function findInteresting(stages: readonly Pick<PipelineStage, 'id' | 'status' | 'rollback' | 'completedAt'>[]): string | undefined {
  const find = (status: StageStatus): string | undefined => stages.find((stage) => stage.status === status)?.id
  const last = stages.filter((stage) => stage.status !== StageStatus.STAGE_NOT_STARTED_YET).at(-1)
  return find(StageStatus.STAGE_FAILURE) ?? find(StageStatus.STAGE_RUNNING) ?? last?.id ?? stages[0]?.id
}

/** Is a rollback part of the picture: was it begun, or planned? */
export function showsRollback(stages: readonly Pick<PipelineStage, 'rollback'>[]): boolean {
  return stages.some((stage) => stage.rollback)
}

const NOTE = 'pipecd/stage-display-metadata'
const PERCENTAGES = ['primary', 'canary', 'baseline', 'promote']

/** What its plugin says of a stage: who approved it, where traffic goes. Agents of version 0 say it with other keys. */
export function findNote(metadata: Record<string, string>): string {
  if (metadata[NOTE]) return metadata[NOTE]
  if (metadata.ApprovedBy) return `Approved by ${metadata.ApprovedBy}`
  if (metadata.SkippedBy) return `Skipped by ${metadata.SkippedBy}`
  return PERCENTAGES.flatMap((name) => (metadata[`${name}-percentage`] ? [`${name} ${metadata[`${name}-percentage`]} %`] : [])).join(', ')
}

/** What the keys of metadata begin with that hold the numbers of an analysis. */
export const ANALYSIS_PREFIX = 'analysis/'

export function hasAnalysis(metadata: Record<string, string>): boolean {
  return Object.keys(metadata).some((key) => key.startsWith(ANALYSIS_PREFIX))
}
