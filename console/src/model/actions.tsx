// SPDX-License-Identifier: Apache-2.0
// What people do to deployments: each asks first and says what will happen.
import { deployments, windows } from '../api/clients'
import type { Deployment, PipelineStage } from '../api/gen/pipecd_wire/model/deployment_pb'
import { ask, toast } from '../ui/dialogs'

export function approve(deployment: Deployment, stage: PipelineStage): void {
  ask({
    title: `Approve ${deployment.applicationName}?`,
    text: <p>The deployment goes on after {stage.name}. Your name is kept with the approval.</p>,
    action: 'Approve',
    field: { label: 'Comment' },
    act: async (comment) => {
      await deployments.approveStage({ deploymentId: deployment.id, stageId: stage.id, comment })
      toast('Approved. The deployment goes on.')
    },
  })
}

export function skip(deployment: Deployment, stage: PipelineStage): void {
  ask({
    title: `Skip ${stage.name}?`,
    text: <p>The stage ends at once and the next one begins. Nothing of what it has done is undone.</p>,
    action: 'Skip the stage',
    field: { label: 'Comment' },
    act: async (comment) => {
      await deployments.skipStage({ deploymentId: deployment.id, stageId: stage.id, comment })
      toast(`${stage.name} is skipped.`)
    },
  })
}

type CancelWay = 'as configured' | 'roll back' | 'leave'

const CANCEL_TEXT: Record<CancelWay, string> = {
  'as configured': 'The stage that runs is stopped and no other begins. What was done is rolled back if the application is configured so.',
  'roll back': 'The stage that runs is stopped, and what was done is rolled back, whatever the application is configured for.',
  leave: 'The stage that runs is stopped. Nothing is rolled back: what was done so far stays.',
}

export function cancel(deployment: Deployment, way: CancelWay): void {
  ask({
    title: `Cancel the deployment of ${deployment.applicationName}?`,
    text: <p>{CANCEL_TEXT[way]}</p>,
    action: way === 'roll back' ? 'Cancel and roll back' : 'Cancel the deployment',
    isDangerous: true,
    field: { label: 'Comment' },
    act: async (comment) => {
      await deployments.cancelDeployment({
        deploymentId: deployment.id,
        forceRollback: way === 'roll back',
        forceNoRollback: way === 'leave',
        comment,
      })
      toast('Cancelled. It stops as soon as its piped has taken it.')
    },
  })
}

export function retry(deployment: Deployment, stageId: string): void {
  const stage = deployment.stages.find((each) => each.id === stageId)
  ask({
    title: `Run ${stage?.name ?? 'the stage'} again?`,
    text: <p>The failed stage runs again from its beginning, as a new attempt, with the same commit.</p>,
    action: 'Retry',
    field: { label: 'Comment' },
    act: async (comment) => {
      await deployments.retryStage({ deploymentId: deployment.id, stageId, comment })
      toast('It runs again.')
    },
  })
}

export function rollBackOpen(deployment: Deployment): void {
  ask({
    title: `Roll back ${deployment.applicationName} now?`,
    text: <p>The deployment does not wait any more: what it did is rolled back, and it ends as failed.</p>,
    action: 'Roll back',
    isDangerous: true,
    field: { label: 'Reason' },
    act: async (reason) => {
      await deployments.rollBackDeployment({ deploymentId: deployment.id, reason })
      toast('It is rolled back.')
    },
  })
}

export function overrideRules(deployment: Deployment): void {
  ask({
    title: `Let ${deployment.applicationName} begin in spite of the rules?`,
    text: <p>Windows, freeze and emergency stop do not hold this one deployment any more. A pin still does. Your name and reason are kept.</p>,
    action: 'Let it begin',
    isDangerous: true,
    field: { label: 'Reason', isRequired: true },
    act: async (reason) => {
      await windows.overrideRules({ deploymentId: deployment.id, reason })
      toast('It may begin now.')
    },
  })
}
