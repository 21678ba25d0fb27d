// SPDX-License-Identifier: Apache-2.0
// All applications: found by name, and by any property, with how many there are for each choice.
import { type ReactNode, useCallback, useEffect, useState } from 'react'
import { overview, web } from '../api/clients'
import { ApplicationStatus, type Facet, type FoundApplication, SearchApplicationsRequest_Activity as Activity, SearchApplicationsRequest_Order as Order } from '../api/gen/pipecd_wire/pipecd/api/overview_pb'
import { ApplicationSyncStatus } from '../api/gen/pipecd_wire/model/application_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { useSession } from '../lib/session'
import { showApplication, showSyncChoice, showSyncOf } from '../model/status'
import { Empty, ErrorBox, Hash, Labels, Loading, SearchBox, Status, Time, useTitle } from '../ui/basics'
import { toastError } from '../ui/dialogs'
import { Icon } from '../ui/icons'
import { AddApplication } from '../ui/AddApplication'

const PAGE = 100
const CONCERN = ofKinds(Kind.APPLICATION, Kind.DEPLOYMENT, Kind.CONTROL)

interface Filters {
  text: string
  status: string[]
  sync: string[]
  kind: string[]
  piped: string[]
  label: string[]
  activity: Activity
  order: Order
}

function readFilters(search: URLSearchParams): Filters {
  return {
    text: search.get('text') ?? '',
    status: search.getAll('status').filter((name) => name in ApplicationStatus),
    sync: search.getAll('sync').filter((name) => name in ApplicationSyncStatus),
    kind: search.getAll('kind'),
    piped: search.getAll('piped'),
    label: search.getAll('label').filter((word) => word.includes(':')),
    activity: { disabled: Activity.DISABLED, any: Activity.ANY }[search.get('activity') ?? ''] ?? Activity.ENABLED,
    order: { name: Order.NAME, changed: Order.CHANGED }[search.get('order') ?? ''] ?? Order.URGENCY,
  }
}

function makeRequest(filters: Filters) {
  const labels = new Map<string, string[]>()
  for (const word of filters.label) {
    const at = word.indexOf(':')
    const key = word.slice(0, at)
    labels.set(key, [...(labels.get(key) ?? []), word.slice(at + 1)])
  }
  return {
    text: filters.text,
    labels: [...labels].map(([key, values]) => ({ key, values })),
    kinds: filters.kind,
    statuses: filters.status.map((name) => ApplicationStatus[name as keyof typeof ApplicationStatus]),
    syncStatuses: filters.sync.map((name) => ApplicationSyncStatus[name as keyof typeof ApplicationSyncStatus]),
    pipedIds: filters.piped,
    activity: filters.activity,
    order: filters.order,
    pageSize: PAGE,
  }
}

export function Applications(): ReactNode {
  useTitle('Applications')
  const session = useSession()
  const [search, setSearch] = useSearch()
  const filters = readFilters(search)
  const request = makeRequest(filters)
  const key = JSON.stringify(request)
  const { data, error, again } = useQuery(`applications/${key}`, () => overview.searchApplications(request), CONCERN)
  const [kept, setKept] = useState(data)
  useEffect(() => {
    if (data) setKept(data)
  }, [data])
  const shown = data ?? kept
  const setText = useCallback((text: string) => setSearch({ text }), [setSearch])
  const isFiltered = search.toString() !== ''
  const [isAdding, setAdding] = useState(false)
  const [showsFacets, setShowsFacets] = useState(false)
  const canAdd = session.can('ApplicationService/AddApplication')
  const offered = useQuery(canAdd ? 'offered' : undefined, () => web.listUnregisteredApplications({}), ofKinds(Kind.APPLICATION, Kind.PIPED)).data?.applications ?? []
  if (!shown) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={8} />
  return (
    <div className="stack wide">
      <div className="head">
        <h1>Applications</h1>
        {canAdd && (
          <button type="button" onClick={() => setAdding(true)}>
            <Icon name="plus" /> Add{offered.length > 0 && ` (${offered.length} found in git)`}
          </button>
        )}
      </div>
      <div className="row">
        <SearchBox label="Search by name" value={filters.text} onChange={setText} />
        <label className="row tight">
          <span className="soft">Order</span>
          <select value={search.get('order') ?? ''} onChange={(event) => setSearch({ order: event.target.value })}>
            <option value="">What needs a look first</option>
            <option value="name">By name</option>
            <option value="changed">What changed last first</option>
          </select>
        </label>
        <label className="row tight">
          <span className="soft">Show</span>
          <select value={search.get('activity') ?? ''} onChange={(event) => setSearch({ activity: event.target.value })}>
            <option value="">Enabled</option>
            <option value="disabled">Disabled</option>
            <option value="any">All</option>
          </select>
        </label>
        <button type="button" className="only-phone" aria-expanded={showsFacets} onClick={() => setShowsFacets(!showsFacets)}>
          Filters
        </button>
        {isFiltered && (
          <button type="button" className="link" onClick={() => setSearch({ text: '', status: [], sync: [], kind: [], piped: [], label: [], order: '', activity: '' })}>
            Clear all filters
          </button>
        )}
        <span className="count push" role="status">
          {Number(shown.total).toLocaleString('en')} {shown.total === 1n ? 'application' : 'applications'}
        </span>
      </div>
      <div className="with-facets">
        <Facets facets={shown.facets} search={search} onChange={setSearch} isOpen={showsFacets} />
        <List key={key} first={shown.applications} cursor={shown.cursor} request={request} isFiltered={isFiltered} />
      </div>
      {isAdding && <AddApplication offered={offered} onClose={() => setAdding(false)} />}
    </div>
  )
}

type ChangeSearch = (changes: Record<string, string | string[]>) => void

const FACET_NAMES: Record<string, string> = { status: 'Newest deployment', sync: 'Sync', kind: 'Kind', piped: 'Piped' }
const FEW = 8

function Facets({ facets, search, onChange, isOpen }: { facets: Facet[]; search: URLSearchParams; onChange: ChangeSearch; isOpen: boolean }): ReactNode {
  return (
    <aside className={isOpen ? 'facets open' : 'facets'} aria-label="Filters">
      {facets
        .filter((facet) => facet.values.length > 0)
        .map((facet) => (
          <FacetChoice key={`${facet.property}/${facet.key}`} facet={facet} search={search} onChange={onChange} />
        ))}
    </aside>
  )
}

function FacetChoice({ facet, search, onChange }: { facet: Facet; search: URLSearchParams; onChange: ChangeSearch }): ReactNode {
  const [showsAll, setShowsAll] = useState(false)
  const isLabel = facet.property === 'label'
  const chosen = search.getAll(facet.property)
  const toWord = (value: string): string => (isLabel ? `${facet.key}:${value}` : value)
  const values = showsAll ? facet.values : facet.values.filter((value, index) => index < FEW || chosen.includes(toWord(value.value)))
  function toggle(word: string): void {
    onChange({ [facet.property]: chosen.includes(word) ? chosen.filter((each) => each !== word) : [...chosen, word] })
  }
  return (
    <fieldset>
      <legend>{isLabel ? facet.key : (FACET_NAMES[facet.property] ?? facet.property)}</legend>
      {values.map((value) => {
        const word = toWord(value.value)
        return (
          <label className="check" key={word}>
            <input type="checkbox" checked={chosen.includes(word)} onChange={() => toggle(word)} />
            <span className="cut" title={value.name || value.value}>
              {nameValue(facet.property, value.value, value.name)}
            </span>
            <span className="count push">{Number(value.count).toLocaleString('en')}</span>
          </label>
        )
      })}
      {facet.values.length > values.length && (
        <button type="button" className="link" onClick={() => setShowsAll(true)}>
          {facet.values.length - values.length} more
        </button>
      )}
      {showsAll && facet.leftOut > 0n && <p className="hint">and {Number(facet.leftOut)} rarer ones: search by name</p>}
    </fieldset>
  )
}

function nameValue(property: string, value: string, name: string): ReactNode {
  if (property === 'status') return <Status shown={showApplication(ApplicationStatus[value as keyof typeof ApplicationStatus])} />
  if (property === 'sync') return <Status shown={showSyncChoice(ApplicationSyncStatus[value as keyof typeof ApplicationSyncStatus])} />
  return name || value
}

function List({ first, cursor, request, isFiltered }: { first: FoundApplication[]; cursor: string; request: ReturnType<typeof makeRequest>; isFiltered: boolean }): ReactNode {
  const [more, setMore] = useState<FoundApplication[]>([])
  const [next, setNext] = useState<string>()
  const [isReading, setReading] = useState(false)
  const following = next ?? cursor
  async function readMore(): Promise<void> {
    setReading(true)
    try {
      const page = await overview.searchApplications({ ...request, cursor: following, withoutFacets: true })
      setMore((before) => [...before, ...page.applications])
      setNext(page.cursor)
    } catch (error) {
      toastError(error)
    } finally {
      setReading(false)
    }
  }
  const known = new Set(first.map((found) => found.application?.id))
  const all = [...first, ...more.filter((found) => !known.has(found.application?.id))]
  if (all.length === 0)
    return (
      <div className="panel">
        {isFiltered ? (
          <Empty title="No application is like that">
            <p>Take a filter away, or show disabled ones too.</p>
          </Empty>
        ) : (
          <Empty title="There is no application yet" command="pipectl application add --help">
            <p>Commit an application file to a repository that a piped watches. It is then offered here, or add it by hand:</p>
          </Empty>
        )}
      </div>
    )
  return (
    <div className="panel">
      <table className="stacked">
        <thead>
          <tr>
            <th scope="col">Application</th>
            <th scope="col">Newest deployment</th>
            <th scope="col">Sync</th>
            <th scope="col">Labels</th>
            <th scope="col">Changed</th>
          </tr>
        </thead>
        <tbody>
          {all.map((found) => (
            <Row key={found.application?.id} found={found} />
          ))}
        </tbody>
      </table>
      {following !== '' && (
        <footer>
          <button type="button" onClick={() => void readMore()} disabled={isReading}>
            Show more
          </button>
        </footer>
      )}
    </div>
  )
}

function Row({ found }: { found: FoundApplication }): ReactNode {
  const { application, newestDeployment: newest, control } = found
  if (!application) return null
  return (
    <tr className={application.disabled ? 'is-off' : ''}>
      <td className="first name">
        <div className="row tight">
          <Link to={`/applications/${application.id}`} className="strong">
            {application.name}
          </Link>
          <span className="soft small">{found.kind}</span>
          {application.disabled && <Status shown={{ word: 'Disabled', icon: 'ban', tone: 'off' }} pill />}
          {control?.hold && <Status shown={{ word: 'Held', icon: 'hand', tone: 'wait' }} pill />}
          {control?.pin && <Status shown={{ word: 'Pinned', icon: 'pin', tone: 'wait' }} pill />}
          {control?.freeze && <Status shown={{ word: 'Frozen', icon: 'snow', tone: 'wait' }} pill />}
        </div>
      </td>
      <td>
        {newest ? (
          <Link to={`/deployments/${newest.id}`} className="quiet-link">
            <Status shown={showApplication(found.status)} />
          </Link>
        ) : (
          <Status shown={showApplication(found.status)} />
        )}
      </td>
      <td>
        <Status shown={showSyncOf(application)} />
      </td>
      <td>
        <Labels labels={application.labels} />
      </td>
      <td className="soft nowrap">
        {newest && (
          <>
            <Hash hash={newest.commitHash} />{' '}
          </>
        )}
        <Time at={newest?.updatedAt ?? application.updatedAt} />
      </td>
    </tr>
  )
}
