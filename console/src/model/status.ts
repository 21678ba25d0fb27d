// SPDX-License-Identifier: Apache-2.0
// How each state is shown: a word, an icon of its own, and a tone.
import { PluginState_State } from '../api/gen/pipecd_wire/pipecd/push/push_pb'
import { ApplicationStatus } from '../api/gen/pipecd_wire/pipecd/api/overview_pb'
import { type Application, ApplicationSyncStatus } from '../api/gen/pipecd_wire/model/application_pb'
import { ResourceState_HealthStatus } from '../api/gen/pipecd_wire/model/application_live_state_pb'
import { ChainStatus } from '../api/gen/pipecd_wire/model/deployment_chain_pb'
import { DeploymentStatus, ManualOperation, type PipelineStage, StageStatus } from '../api/gen/pipecd_wire/model/deployment_pb'
import { EventStatus } from '../api/gen/pipecd_wire/model/event_pb'
import { Piped_ConnectionStatus } from '../api/gen/pipecd_wire/model/piped_pb'
import type { IconName } from '../ui/icons'

export type Tone = 'good' | 'bad' | 'busy' | 'wait' | 'off'

export interface Shown {
  word: string
  icon: IconName
  tone: Tone
}

const show = (word: string, icon: IconName, tone: Tone): Shown => ({ word, icon, tone })
const UNKNOWN = show('Unknown', 'unknown', 'off')

const DEPLOYMENT: Record<number, Shown> = {
  [DeploymentStatus.DEPLOYMENT_PENDING]: show('Queued', 'queued', 'off'),
  [DeploymentStatus.DEPLOYMENT_PLANNED]: show('Planned', 'queued', 'off'),
  [DeploymentStatus.DEPLOYMENT_RUNNING]: show('Running', 'busy', 'busy'),
  [DeploymentStatus.DEPLOYMENT_ROLLING_BACK]: show('Rolling back', 'back', 'wait'),
  [DeploymentStatus.DEPLOYMENT_SUCCESS]: show('Succeeded', 'check', 'good'),
  [DeploymentStatus.DEPLOYMENT_FAILURE]: show('Failed', 'failed', 'bad'),
  [DeploymentStatus.DEPLOYMENT_CANCELLED]: show('Cancelled', 'stopped', 'off'),
}

export const WAITING = show('Waits for approval', 'paused', 'wait')

export function showDeployment(status: DeploymentStatus): Shown {
  return DEPLOYMENT[status] ?? UNKNOWN
}

export function isCompleted(status: DeploymentStatus): boolean {
  return status >= DeploymentStatus.DEPLOYMENT_SUCCESS
}

const STAGE: Record<number, Shown> = {
  [StageStatus.STAGE_NOT_STARTED_YET]: show('Not started', 'notyet', 'off'),
  [StageStatus.STAGE_RUNNING]: show('Running', 'busy', 'busy'),
  [StageStatus.STAGE_SUCCESS]: show('Succeeded', 'check', 'good'),
  [StageStatus.STAGE_FAILURE]: show('Failed', 'failed', 'bad'),
  [StageStatus.STAGE_CANCELLED]: show('Cancelled', 'stopped', 'off'),
  [StageStatus.STAGE_SKIPPED]: show('Skipped', 'skipped', 'off'),
  [StageStatus.STAGE_EXITED]: show('Ended the pipeline', 'check', 'good'),
}

export function showStage(stage: PipelineStage): Shown {
  if (waitsForApproval(stage)) return WAITING
  return STAGE[stage.status] ?? UNKNOWN
}

export function waitsForApproval(stage: PipelineStage): boolean {
  return stage.status === StageStatus.STAGE_RUNNING && stage.availableOperation === ManualOperation.APPROVE
}

export function canBeSkipped(stage: PipelineStage): boolean {
  return stage.status === StageStatus.STAGE_RUNNING && stage.availableOperation === ManualOperation.SKIP
}

export function isStageOver(stage: PipelineStage): boolean {
  return stage.status >= StageStatus.STAGE_SUCCESS
}

const APPLICATION: Record<number, Shown> = {
  [ApplicationStatus.NEVER_DEPLOYED]: show('Never deployed', 'notyet', 'off'),
  [ApplicationStatus.IN_PROGRESS]: show('In progress', 'busy', 'busy'),
  [ApplicationStatus.WAITING]: show('Waits for a person', 'paused', 'wait'),
  [ApplicationStatus.SUCCEEDED]: show('Succeeded', 'check', 'good'),
  [ApplicationStatus.FAILED]: show('Failed', 'failed', 'bad'),
  [ApplicationStatus.CANCELLED]: show('Cancelled', 'stopped', 'off'),
}

export function showApplication(status: ApplicationStatus): Shown {
  return APPLICATION[status] ?? UNKNOWN
}

const SYNC: Record<number, Shown> = {
  [ApplicationSyncStatus.SYNCED]: show('In sync', 'check', 'good'),
  [ApplicationSyncStatus.DEPLOYING]: show('Deploying', 'busy', 'busy'),
  [ApplicationSyncStatus.OUT_OF_SYNC]: show('Out of sync', 'differs', 'wait'),
  [ApplicationSyncStatus.INVALID_CONFIG]: show('Invalid configuration', 'failed', 'bad'),
}

export function showSync(status: ApplicationSyncStatus | undefined): Shown {
  return SYNC[status ?? 0] ?? show('Not known yet', 'unknown', 'off')
}

const NO_LIVE_STATE = show('No live state', 'notyet', 'off')

/** The sync of an application; one without deploy targets runs scripts alone, so that there is nothing to compare. */
export function showSyncOf(application: Application): Shown {
  const status = findSync(application)
  return status === ApplicationSyncStatus.UNKNOWN && !hasTargets(application) ? NO_LIVE_STATE : showSync(status)
}

/** As the server counts it: while it is deployed, it is not out of sync. */
export function findSync(application: Application): ApplicationSyncStatus {
  const told = application.syncState?.status ?? ApplicationSyncStatus.UNKNOWN
  return application.deploying && told !== ApplicationSyncStatus.INVALID_CONFIG ? ApplicationSyncStatus.DEPLOYING : told
}

function hasTargets(application: Application): boolean {
  return application.platformProvider !== '' || application.cloudProvider !== '' || Object.values(application.deployTargetsByPlugin).some((found) => found.deployTargets.length > 0)
}

/** The choice among filters: those that are not known yet, and those that never will be. */
export function showSyncChoice(status: ApplicationSyncStatus): Shown {
  return status === ApplicationSyncStatus.UNKNOWN ? NO_LIVE_STATE : showSync(status)
}

const HEALTH: Record<number, Shown> = {
  [ResourceState_HealthStatus.HEALTHY]: show('Healthy', 'check', 'good'),
  [ResourceState_HealthStatus.UNHEALTHY]: show('Unhealthy', 'failed', 'bad'),
}

export function showHealth(status: ResourceState_HealthStatus): Shown {
  return HEALTH[status] ?? UNKNOWN
}

const PIPED: Record<number, Shown> = {
  [Piped_ConnectionStatus.ONLINE]: show('Online', 'plug', 'good'),
  [Piped_ConnectionStatus.OFFLINE]: show('Offline', 'unplugged', 'bad'),
}

export function showPiped(status: Piped_ConnectionStatus): Shown {
  return PIPED[status] ?? show('Never seen', 'unknown', 'off')
}

const PLUGIN: Record<number, Shown> = {
  [PluginState_State.FETCHING]: show('Fetching', 'busy', 'busy'),
  [PluginState_State.STARTING]: show('Starting', 'busy', 'busy'),
  [PluginState_State.READY]: show('Ready', 'check', 'good'),
  [PluginState_State.FAILED]: show('Failed', 'failed', 'bad'),
  [PluginState_State.STOPPING]: show('Stopping', 'stopped', 'off'),
}

export function showPlugin(state: PluginState_State): Shown {
  return PLUGIN[state] ?? UNKNOWN
}

const CHAIN: Record<number, Shown> = {
  [ChainStatus.DEPLOYMENT_CHAIN_PENDING]: show('Queued', 'queued', 'off'),
  [ChainStatus.DEPLOYMENT_CHAIN_RUNNING]: show('Running', 'busy', 'busy'),
  [ChainStatus.DEPLOYMENT_CHAIN_SUCCESS]: show('Succeeded', 'check', 'good'),
  [ChainStatus.DEPLOYMENT_CHAIN_FAILURE]: show('Failed', 'failed', 'bad'),
  [ChainStatus.DEPLOYMENT_CHAIN_CANCELLED]: show('Cancelled', 'stopped', 'off'),
}

export function showChain(status: number): Shown {
  return CHAIN[status] ?? UNKNOWN
}

const EVENT: Record<number, Shown> = {
  [EventStatus.EVENT_NOT_HANDLED]: show('Not handled yet', 'queued', 'off'),
  [EventStatus.EVENT_SUCCESS]: show('Handled', 'check', 'good'),
  [EventStatus.EVENT_FAILURE]: show('Failed', 'failed', 'bad'),
  [EventStatus.EVENT_OUTDATED]: show('Outdated', 'ban', 'off'),
}

export function showEvent(status: EventStatus): Shown {
  return EVENT[status] ?? UNKNOWN
}
