// SPDX-License-Identifier: Apache-2.0
// Who did what.
import { type ReactNode, useCallback, useState } from 'react'
import { project } from '../api/clients'
import type { AuditRecord } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { Empty, ErrorBox, Loading, SearchBox, Status, Time, useTitle } from '../ui/basics'
import { toastError } from '../ui/dialogs'

const PAGE = 100

export function Audit(): ReactNode {
  useTitle('Audit')
  const [search, setSearch] = useSearch()
  const actor = search.get('actor') ?? ''
  const subject = search.get('subject') ?? ''
  const action = search.get('action') ?? ''
  const setActor = useCallback((text: string) => setSearch({ actor: text }), [setSearch])
  const setSubject = useCallback((text: string) => setSearch({ subject: text }), [setSearch])
  const setAction = useCallback((text: string) => setSearch({ action: text }), [setSearch])
  return (
    <div className="stack wide">
      <h1>Audit</h1>
      <div className="row">
        <SearchBox label="Who (whole name)" value={actor} onChange={setActor} />
        <SearchBox label="What was done, such as ApproveStage" value={action} onChange={setAction} />
        <SearchBox label="To what (id or whole name)" value={subject} onChange={setSubject} />
      </div>
      <Records key={`${actor}/${subject}/${action}`} filter={{ actor, subject, action }} />
    </div>
  )
}

function Records({ filter }: { filter: { actor: string; subject: string; action: string } }): ReactNode {
  const { data, error, again } = useQuery(`audit/${JSON.stringify(filter)}`, () => project.listAudit({ ...filter, pageSize: PAGE }))
  const [older, setOlder] = useState<AuditRecord[]>([])
  const [cursor, setCursor] = useState<string>()
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={8} />
  const next = cursor ?? data.cursor
  async function readMore(): Promise<void> {
    try {
      const page = await project.listAudit({ ...filter, pageSize: PAGE, cursor: next })
      setOlder((before) => [...before, ...page.records])
      setCursor(page.cursor)
    } catch (failure) {
      toastError(failure)
    }
  }
  const all = [...data.records, ...older]
  return (
    <div className="panel">
      {all.length === 0 ? (
        <Empty title="Nobody did that" command="pipectl audit list --help">
          <p>Everything that people and programs change is written down here.</p>
        </Empty>
      ) : (
        <table className="stacked">
          <thead>
            <tr>
              <th scope="col">When</th>
              <th scope="col">Who</th>
              <th scope="col">What</th>
              <th scope="col">To what</th>
              <th scope="col">Outcome</th>
              <th scope="col">From</th>
            </tr>
          </thead>
          <tbody>
            {all.map((record) => (
              <tr key={record.id || String(record.sequence)}>
                <td className="soft nowrap">
                  <Time at={record.at} />
                </td>
                <td className="strong">{record.actor}</td>
                <td>
                  {record.action}
                  {record.count > 1n && ` (${record.count} times)`}
                </td>
                <td className="anywhere">
                  <Subject record={record} />
                  {record.reason && <p className="soft small anywhere">{record.reason}</p>}
                  {(record.before || record.after) && (
                    <details>
                      <summary className="small soft">What changed</summary>
                      <pre className="text-block wrap" tabIndex={0}>
                        {record.before && `before: ${record.before}\n`}
                        {record.after && `after:  ${record.after}`}
                      </pre>
                    </details>
                  )}
                </td>
                <td>
                  <Status shown={record.outcome === 'OK' ? { word: 'Done', icon: 'check', tone: 'good' } : { word: 'Refused', icon: 'ban', tone: 'wait' }}>{record.outcome === 'OK' ? 'Done' : record.outcome}</Status>
                </td>
                <td className="soft">{record.address}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {next !== '' && (
        <footer>
          <button type="button" onClick={() => void readMore()}>
            Show older ones
          </button>
        </footer>
      )}
    </div>
  )
}

const PAGES: Record<string, string> = { application: '/applications/', deployment: '/deployments/' }

function Subject({ record }: { record: AuditRecord }): ReactNode {
  const page = PAGES[record.subjectKind]
  const name = record.subjectName || record.subject
  return (
    <span>
      <span className="soft">{record.subjectKind}</span> {page && record.subject ? <Link to={page + record.subject}>{name}</Link> : name}
    </span>
  )
}
