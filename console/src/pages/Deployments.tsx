// SPDX-License-Identifier: Apache-2.0
// All deployments, newest first, page by page.
import { type ReactNode, useCallback, useEffect, useState } from 'react'
import { web } from '../api/clients'
import { type Deployment, DeploymentStatus } from '../api/gen/pipecd_wire/model/deployment_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { showDeployment, waitsForApproval, WAITING } from '../model/status'
import { Empty, ErrorBox, Hash, Labels, Loading, SearchBox, Status, Time, Took, useTitle } from '../ui/basics'
import { toastError } from '../ui/dialogs'

const PAGE = 50

const CHOICES: Record<string, { name: string; statuses: DeploymentStatus[] }> = {
  all: { name: 'All', statuses: [] },
  open: {
    name: 'In progress',
    statuses: [DeploymentStatus.DEPLOYMENT_PENDING, DeploymentStatus.DEPLOYMENT_PLANNED, DeploymentStatus.DEPLOYMENT_RUNNING, DeploymentStatus.DEPLOYMENT_ROLLING_BACK],
  },
  failed: { name: 'Failed', statuses: [DeploymentStatus.DEPLOYMENT_FAILURE] },
  succeeded: { name: 'Succeeded', statuses: [DeploymentStatus.DEPLOYMENT_SUCCESS] },
  cancelled: { name: 'Cancelled', statuses: [DeploymentStatus.DEPLOYMENT_CANCELLED] },
}

export function Deployments(): ReactNode {
  useTitle('Deployments')
  const [search, setSearch] = useSearch()
  const choice = CHOICES[search.get('status') ?? 'all'] ? (search.get('status') ?? 'all') : 'all'
  const name = search.get('name') ?? ''
  const labels = readLabels(search.getAll('label'))
  const setName = useCallback((text: string) => setSearch({ name: text }), [setSearch])
  return (
    <div className="stack wide">
      <div className="head">
        <h1>Deployments</h1>
      </div>
      <div className="row">
        <SearchBox label="Application name" value={name} onChange={setName} />
        <label className="row">
          <span className="soft">Status</span>
          <select value={choice} onChange={(event) => setSearch({ status: event.target.value === 'all' ? '' : event.target.value })}>
            {Object.entries(CHOICES).map(([key, each]) => (
              <option key={key} value={key}>
                {each.name}
              </option>
            ))}
          </select>
        </label>
        {Object.keys(labels).length > 0 && (
          <>
            <Labels labels={labels} />
            <button type="button" className="link" onClick={() => setSearch({ label: '' })}>
              Without labels
            </button>
          </>
        )}
      </div>
      <DeploymentList key={`${choice}/${name}/${JSON.stringify(labels)}`} options={{ statuses: CHOICES[choice]?.statuses ?? [], applicationName: name, labels }} isFiltered={choice !== 'all' || name !== ''} />
    </div>
  )
}

function readLabels(words: string[]): Record<string, string> {
  return Object.fromEntries(words.map((word) => [word.slice(0, word.indexOf(':')), word.slice(word.indexOf(':') + 1)]).filter(([key]) => key))
}

interface Options {
  statuses: DeploymentStatus[]
  applicationName?: string
  applicationIds?: string[]
  labels?: Record<string, string>
}

export function DeploymentList({ options, isFiltered, rowActions }: { options: Options; isFiltered: boolean; rowActions?: (deployment: Deployment) => ReactNode }): ReactNode {
  const key = `deployments/${JSON.stringify(options)}`
  const { data, error, again } = useQuery(key, () => web.listDeployments({ options, pageSize: PAGE }), ofKinds(Kind.DEPLOYMENT))
  const [older, setOlder] = useState<Deployment[]>([])
  const [cursor, setCursor] = useState<string>()
  const [isReading, setReading] = useState(false)
  const isFixed = cursor !== undefined
  useEffect(() => {
    setOlder([])
    setCursor(undefined)
  }, [key])
  const next = isFixed ? cursor : data?.cursor
  async function readMore(): Promise<void> {
    setReading(true)
    try {
      const page = await web.listDeployments({ options, pageSize: PAGE, cursor: next ?? '' })
      setOlder((before) => [...before, ...page.deployments])
      setCursor(page.cursor)
    } catch (failure) {
      toastError(failure)
    } finally {
      setReading(false)
    }
  }
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={8} />
  const newest = new Set(data.deployments.map((deployment) => deployment.id))
  const all = [...data.deployments, ...older.filter((deployment) => !newest.has(deployment.id))]
  const hasMore = next !== '' && (isFixed || data.deployments.length >= PAGE)
  return (
    <div className="panel">
      {all.length === 0 ? (
        isFiltered ? (
          <Empty title="No deployment is like that" />
        ) : (
          <Empty title="Nothing was deployed yet" command="pipectl application sync NAME">
            <p>Commit a change to an application, or deploy one by hand:</p>
          </Empty>
        )
      ) : (
        <table className="stacked">
          <thead>
            <tr>
              <th scope="col">Status</th>
              <th scope="col">Application</th>
              <th scope="col">Commit</th>
              <th scope="col">By</th>
              <th scope="col">Begun</th>
              <th scope="col">Took</th>
              {rowActions && (
                <th scope="col">
                  <span className="hidden-text">Actions</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {all.map((deployment) => (
              <tr key={deployment.id}>
                <td>
                  <Status shown={deployment.stages.some(waitsForApproval) ? WAITING : showDeployment(deployment.status)} />
                </td>
                <td className="name">
                  <Link to={`/deployments/${deployment.id}`} className="strong">
                    {deployment.applicationName}
                  </Link>
                </td>
                <td className="first message">
                  <div className="cut">
                    <Hash hash={deployment.trigger?.commit?.hash ?? ''} /> {deployment.trigger?.commit?.message.split('\n')[0]}
                  </div>
                </td>
                <td className="soft nowrap">{deployment.trigger?.commander || deployment.trigger?.commit?.author}</td>
                <td className="soft nowrap">
                  <Time at={deployment.createdAt} />
                </td>
                <td className="soft nowrap">
                  <Took from={deployment.createdAt} to={deployment.completedAt} />
                </td>
                {rowActions && <td className="actions">{rowActions(deployment)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {hasMore && (
        <footer>
          <button type="button" onClick={() => void readMore()} disabled={isReading}>
            Show older ones
          </button>
        </footer>
      )}
    </div>
  )
}
