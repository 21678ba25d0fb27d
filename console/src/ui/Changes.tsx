// SPDX-License-Identifier: Apache-2.0
// What a deployment changes against what ran before it. Its piped is asked when somebody wants to know.
import type { ReactNode } from 'react'
import { deployments, PATIENT } from '../api/clients'
import type { Deployment } from '../api/gen/pipecd_wire/model/deployment_pb'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { isCompleted } from '../model/status'
import { DiffView, ErrorBox, Hash, Loading, Panel } from './basics'
import { FileList, PluginDiffs } from './Differences'
import { Icon } from './icons'

const SHOWN = 'shown'

export function Changes({ deployment }: { deployment: Deployment }): ReactNode {
  const [search, setSearch] = useSearch()
  const isShown = search.get('changes') === SHOWN
  return (
    <Panel
      title="What it changes"
      actions={
        <button type="button" aria-expanded={isShown} onClick={() => setSearch({ changes: isShown ? '' : SHOWN })}>
          <Icon name={isShown ? 'down' : 'right'} /> {isShown ? 'Hide' : 'Show'}
        </button>
      }
    >
      {isShown && (
        <div className="body stack">
          <Found deployment={deployment} />
        </div>
      )}
    </Panel>
  )
}

function Found({ deployment }: { deployment: Deployment }): ReactNode {
  const isOpen = !isCompleted(deployment.status)
  // Another answer when it is completed: plugins compare with what runs now.
  const { data, error, again } = useQuery(`diff/${deployment.id}/${isOpen}`, () => deployments.getDeploymentDiff({ deploymentId: deployment.id }, PATIENT))
  if (error) return <ErrorBox error={error} again={again} />
  const diff = data?.diff
  if (!diff) return <Loading lines={4} />
  if (!diff.runningCommitHash)
    return (
      <>
        <p>Nothing ran before it: it is the first deployment of this application.</p>
        <PluginDiffs diffs={diff.diffs} />
      </>
    )
  return (
    <>
      <p>
        From <Hash hash={diff.runningCommitHash} />
        {data.runningDeploymentId && (
          <>
            {' '}
            (<Link to={`/deployments/${data.runningDeploymentId}`}>its deployment</Link>)
          </>
        )}{' '}
        to <Hash hash={diff.commitHash} />
        {diff.runningCommitHash === diff.commitHash && ': the same commit ran before'}
      </p>
      <div>
        <FileList files={diff.files} leftOut={diff.filesLeftOut} />
      </div>
      {diff.gitDiff && <DiffView text={diff.gitDiff} />}
      <PluginDiffs diffs={diff.diffs} />
      {diff.error && <p className="wait anywhere">{diff.error}</p>}
    </>
  )
}
