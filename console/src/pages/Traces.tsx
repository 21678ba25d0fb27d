// SPDX-License-Identifier: Apache-2.0
// From a commit of a program's source to the deployments that it led to.
import { type ReactNode, useCallback, useState } from 'react'
import { web } from '../api/clients'
import type { ListDeploymentTracesResponse_DeploymentTraceRes as Trace } from '../api/gen/pipecd_wire/webservice/service_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { showDeployment } from '../model/status'
import { Empty, ErrorBox, Hash, Loading, SearchBox, Status, Time, useTitle } from '../ui/basics'
import { toastError } from '../ui/dialogs'

const PAGE = 30

export function Traces(): ReactNode {
  useTitle('Traces')
  const [search, setSearch] = useSearch()
  const commit = search.get('commit') ?? ''
  const setCommit = useCallback((text: string) => setSearch({ commit: text.trim() }), [setSearch])
  return (
    <div className="stack wide">
      <h1>Traces</h1>
      <div className="row">
        <SearchBox label="Commit" value={commit} onChange={setCommit} placeholder="the whole hash of a commit" />
      </div>
      <TraceList key={commit} commit={commit} />
    </div>
  )
}

function TraceList({ commit }: { commit: string }): ReactNode {
  const options = { commitHash: commit }
  const { data, error, again } = useQuery(`traces/${commit}`, () => web.listDeploymentTraces({ options, pageSize: PAGE }), ofKinds(Kind.DEPLOYMENT_TRACE, Kind.DEPLOYMENT))
  const [older, setOlder] = useState<Trace[]>([])
  const [cursor, setCursor] = useState<string>()
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={6} />
  const next = cursor ?? (data.traces.length < PAGE ? '' : data.cursor)
  async function readMore(): Promise<void> {
    try {
      const page = await web.listDeploymentTraces({ options, pageSize: PAGE, cursor: next })
      setOlder((before) => [...before, ...page.traces])
      setCursor(page.traces.length < PAGE ? '' : page.cursor)
    } catch (failure) {
      toastError(failure)
    }
  }
  const newest = new Set(data.traces.map((each) => each.trace?.id))
  const all = [...data.traces, ...older.filter((each) => !newest.has(each.trace?.id))]
  if (all.length === 0) return <NoTrace isFiltered={commit !== ''} />
  return (
    <div className="stack">
      {all.map((each) => (
        <TracePanel key={each.trace?.id} found={each} />
      ))}
      {next !== '' && (
        <div>
          <button type="button" onClick={() => void readMore()}>
            Show older ones
          </button>
        </div>
      )}
    </div>
  )
}

function TracePanel({ found }: { found: Trace }): ReactNode {
  const trace = found.trace
  if (!trace) return null
  const title = trace.title || trace.commitMessage.split('\n')[0] || trace.commitHash
  return (
    <section className="panel" aria-label={title}>
      <header>
        <h2 className="anywhere">{title}</h2>
        <span className="soft small push">
          <Hash hash={trace.commitHash} url={trace.commitUrl} /> {trace.author && `by ${trace.author}, `}
          <Time at={trace.commitTimestamp} />
        </span>
      </header>
      {found.deployments.length === 0 ? (
        <p className="body-line soft">It has led to no deployment yet.</p>
      ) : (
        <ul className="list">
          {found.deployments.map((deployment) => (
            <li key={deployment.id}>
              <div className="row">
                <Status shown={showDeployment(deployment.status)} />
                <Link to={`/deployments/${deployment.id}`}>{deployment.applicationName}</Link>
                <span className="soft anywhere">{deployment.trigger?.commit?.message.split('\n')[0]}</span>
                <span className="soft small push">
                  <Time at={deployment.createdAt} />
                </span>
              </div>
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

function NoTrace({ isFiltered }: { isFiltered: boolean }): ReactNode {
  return (
    <div className="panel">
      {isFiltered ? (
        <Empty title="No trace is of that commit">
          <p>
            The whole hash is compared. <Link to="/traces">Show all traces</Link>.
          </p>
        </Empty>
      ) : (
        <Empty title="There is no trace yet">
          <p>
            A trace leads from a commit of your program to what it deployed. A build begins one with <code>pipectl event register</code>, by the hash and the address of its commit. Deployments join it whose own commit has the line:
          </p>
          <pre className="text-block wrap example" tabIndex={0} aria-label="The line of a commit message">
            Pipecd-Dev-Trace-Trigger-Commit-Hash: HASH
          </pre>
        </Empty>
      )}
    </div>
  )
}
