// SPDX-License-Identifier: Apache-2.0
// What people do to applications: each asks first and says what will happen.
import { applications, web } from '../api/clients'
import type { Application } from '../api/gen/pipecd_wire/model/application_pb'
import { SyncStrategy } from '../api/gen/pipecd_wire/model/common_pb'
import { CommandStatus } from '../api/gen/pipecd_wire/model/command_pb'
import { Kind } from '../lib/concerns'
import { navigate } from '../lib/router'
import { onChanges } from '../live/live'
import { ask, toast } from '../ui/dialogs'

const HOW: Record<number, string> = {
  [SyncStrategy.AUTO]: 'The head of its branch is deployed, in the way that its file and plugins choose.',
  [SyncStrategy.QUICK_SYNC]: 'The head of its branch is deployed at once, without its pipeline: no canary, no approval.',
  [SyncStrategy.PIPELINE]: 'The head of its branch is deployed through all stages of its pipeline.',
}

export function deploy(application: Application, strategy: SyncStrategy): void {
  ask({
    title: `Deploy ${application.name}?`,
    text: <p>{HOW[strategy]}</p>,
    action: 'Deploy',
    act: async () => {
      const { commandId } = await applications.syncApplication({ applicationId: application.id, strategy })
      toast(`${application.name} is deployed.`)
      void openWhenMade(commandId)
    },
  })
}

const LONGEST_WAIT_MS = 20_000

/** Opens the deployment that a command makes, once its piped has made it. */
async function openWhenMade(commandId: string): Promise<void> {
  const begun = Date.now()
  const here = location.pathname
  const stop = onChanges((changes) => {
    if (changes === 'everything' || changes.some((change) => change.kind === Kind.COMMAND && change.id === commandId)) void look()
  })
  async function look(): Promise<void> {
    const { command } = await web.getCommand({ commandId })
    if (!command || command.status === CommandStatus.COMMAND_NOT_HANDLED_YET) return
    stop()
    if (Date.now() - begun > LONGEST_WAIT_MS) return
    const id = Object.entries(command.metadata).find(([key]) => /deployment.?id/i.test(key))?.[1]
    if (command.status === CommandStatus.COMMAND_SUCCEEDED && id) {
      if (location.pathname === here) navigate(`/deployments/${id}`)
      else toast('The deployment has begun.', { link: { to: `/deployments/${id}`, text: 'Open it' } })
    } else if (command.status !== CommandStatus.COMMAND_SUCCEEDED) {
      const reason = Object.values(command.metadata).join(' ')
      toast(`Its piped did not deploy it. ${reason}`, { isError: true })
    }
  }
  await look().catch(() => undefined)
}

export function releaseHold(application: Application): void {
  ask({
    title: `Deploy the held commit of ${application.name} again?`,
    text: <p>The commit that failed is deployed once more, unchanged.</p>,
    action: 'Deploy it again',
    field: { label: 'Reason' },
    act: async (reason) => {
      const made = await applications.releaseHold({ applicationId: application.id, reason })
      toast('It is deployed again.', { link: { to: `/deployments/${made.deploymentId}`, text: 'Open the deployment' } })
    },
  })
}

export function releasePin(application: Application): void {
  ask({
    title: `Release the pin of ${application.name}?`,
    text: <p>The newest commit of its branch is deployed, if it is another one than what runs.</p>,
    action: 'Release the pin',
    act: async () => {
      await applications.releasePin({ applicationId: application.id })
      toast('The pin is released.')
    },
  })
}

export function freeze(application: Application): void {
  ask({
    title: `Freeze ${application.name}?`,
    text: <p>No new deployment of it begins until the freeze is lifted. What runs finishes; rollbacks are never stopped.</p>,
    action: 'Freeze',
    field: { label: 'Reason', isRequired: true },
    act: async (reason) => {
      await applications.setFreeze({ applicationId: application.id, frozen: true, reason })
      toast(`${application.name} is frozen.`)
    },
  })
}

export function liftFreeze(application: Application): void {
  ask({
    title: `Lift the freeze of ${application.name}?`,
    text: <p>Deployments that wait for it begin at once.</p>,
    action: 'Lift the freeze',
    act: async () => {
      await applications.setFreeze({ applicationId: application.id, frozen: false })
      toast('The freeze is lifted.')
    },
  })
}

export function switchApplication(application: Application): void {
  const word = application.disabled ? 'Enable' : 'Disable'
  ask({
    title: `${word} ${application.name}?`,
    text: (
      <p>
        {application.disabled
          ? 'Its piped looks at it again, and deploys what has changed since.'
          : 'Its piped leaves it alone: nothing is deployed, nothing is checked. What runs goes on running.'}
      </p>
    ),
    action: word,
    act: async () => {
      const request = { applicationId: application.id }
      if (application.disabled) await web.enableApplication(request)
      else await web.disableApplication(request)
      toast(application.disabled ? `${application.name} is enabled.` : `${application.name} is disabled.`)
    },
  })
}

export function deleteApplication(application: Application): void {
  ask({
    title: `Delete ${application.name}?`,
    text: <p>It disappears from the project with its live state. What it has deployed goes on running, and the files in git stay. This cannot be undone; it can be added anew.</p>,
    action: 'Delete',
    isDangerous: true,
    typeToConfirm: application.name,
    act: async () => {
      await web.deleteApplication({ applicationId: application.id })
      toast(`${application.name} is deleted.`)
      navigate('/applications')
    },
  })
}
