// SPDX-License-Identifier: Apache-2.0
// Bringing an application back to an earlier version: first what would change, then the question.
import { type ReactNode, useEffect, useState } from 'react'
import { applications, PATIENT } from '../api/clients'
import { explainShortly } from '../api/errors'
import type { RollBackApplicationResponse } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import { Hash, Loading } from './basics'
import { ask, toast } from './dialogs'
import { FileList, PluginDiffs } from './Differences'

interface Target {
  applicationId: string
  applicationName: string
  deploymentId: string
}

export function chooseRollBack(target: Target): void {
  ask({
    title: `Roll back ${target.applicationName}?`,
    isWide: true,
    text: (
      <>
        <p>A deployment of its own brings the application back to this version and pins it there: newer commits wait until you release the pin.</p>
        <Preview target={target} />
      </>
    ),
    action: 'Roll back',
    isDangerous: true,
    field: { label: 'Reason' },
    act: async (reason) => {
      const made = await applications.rollBackApplication({ applicationId: target.applicationId, deploymentId: target.deploymentId, reason })
      toast('It is brought back.', { link: { to: `/deployments/${made.deploymentId}`, text: 'Open the deployment' } })
    },
  })
}

function Preview({ target }: { target: Target }): ReactNode {
  const [answer, setAnswer] = useState<RollBackApplicationResponse>()
  const [error, setError] = useState('')
  useEffect(() => {
    let isGone = false
    applications.rollBackApplication({ applicationId: target.applicationId, deploymentId: target.deploymentId, dryRun: true }, PATIENT).then(
      (found) => !isGone && setAnswer(found),
      (failure: unknown) => !isGone && setError(explainShortly(failure)),
    )
    return () => {
      isGone = true
    }
  }, [target.applicationId, target.deploymentId])
  if (error)
    return (
      <p className="wait" role="alert">
        What would change could not be found out: {error}
      </p>
    )
  const preview = answer?.preview
  if (!preview) return <Loading lines={4} />
  return (
    <div className="stack">
      <dl className="facts">
        <dt>Runs now</dt>
        <dd>{preview.runningCommitHash ? <Hash hash={preview.runningCommitHash} /> : 'nothing yet'}</dd>
        <dt>Back to</dt>
        <dd>
          <Hash hash={preview.commitHash} /> {preview.commitMessage.split('\n')[0]} <span className="soft">by {preview.commitAuthor}</span>
        </dd>
        <dt>Stages</dt>
        <dd>{preview.stages.join(' → ') || '-'}</dd>
        <dt>Files</dt>
        <dd>
          <FileList files={preview.files} leftOut={preview.filesLeftOut} />
        </dd>
      </dl>
      <PluginDiffs diffs={preview.diffs} />
      {preview.error && <p className="wait anywhere">{preview.error}</p>}
    </div>
  )
}
