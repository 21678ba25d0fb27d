// SPDX-License-Identifier: Apache-2.0
// What was told from outside, and what became of it.
import { type ReactNode, useCallback, useState } from 'react'
import { web } from '../api/clients'
import { type Event, EventStatus } from '../api/gen/pipecd_wire/model/event_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { showEvent } from '../model/status'
import { Empty, ErrorBox, Hash, Labels, Loading, SearchBox, Status, Time, useTitle } from '../ui/basics'
import { toastError } from '../ui/dialogs'

const PAGE = 50
const EXAMPLE = `spec:
  postSync:
    events:
      - name: shop-deployed
        data: "{{ .commit }}"`
const CHOICES: [string, EventStatus][] = [
  ['waiting', EventStatus.EVENT_NOT_HANDLED],
  ['handled', EventStatus.EVENT_SUCCESS],
  ['failed', EventStatus.EVENT_FAILURE],
  ['outdated', EventStatus.EVENT_OUTDATED],
]

export function Events(): ReactNode {
  useTitle('Events')
  const [search, setSearch] = useSearch()
  const name = search.get('name') ?? ''
  const status = CHOICES.find(([word]) => word === search.get('status'))
  const setName = useCallback((text: string) => setSearch({ name: text }), [setSearch])
  const options = { name, statuses: status ? [status[1]] : [] }
  return (
    <div className="stack wide">
      <h1>Events</h1>
      <div className="row">
        <SearchBox label="Name" value={name} onChange={setName} />
        <label className="row tight">
          <span className="soft">Status</span>
          <select value={status?.[0] ?? ''} onChange={(event) => setSearch({ status: event.target.value })}>
            <option value="">All</option>
            {CHOICES.map(([word, value]) => (
              <option key={word} value={word}>
                {showEvent(value).word}
              </option>
            ))}
          </select>
        </label>
      </div>
      <EventList key={JSON.stringify(options)} options={options} />
    </div>
  )
}

function EventList({ options }: { options: { name: string; statuses: EventStatus[] } }): ReactNode {
  const { data, error, again } = useQuery(`events/${JSON.stringify(options)}`, () => web.listEvents({ options, pageSize: PAGE }), ofKinds(Kind.EVENT))
  const [older, setOlder] = useState<Event[]>([])
  const [cursor, setCursor] = useState<string>()
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={6} />
  const next = cursor ?? (data.events.length < PAGE ? '' : data.cursor)
  async function readMore(): Promise<void> {
    try {
      const page = await web.listEvents({ options, pageSize: PAGE, cursor: next })
      setOlder((before) => [...before, ...page.events])
      setCursor(page.events.length < PAGE ? '' : page.cursor)
    } catch (failure) {
      toastError(failure)
    }
  }
  const all = [...data.events, ...older]
  return (
    <div className="panel">
      {all.length === 0 ? (
        <NoEvent isFiltered={options.name !== '' || options.statuses.length > 0} />
      ) : (
        <table className="stacked">
          <thead>
            <tr>
              <th scope="col">Status</th>
              <th scope="col">Name</th>
              <th scope="col">Value</th>
              <th scope="col">Labels</th>
              <th scope="col">Told</th>
            </tr>
          </thead>
          <tbody>
            {all.map((event) => (
              <tr key={event.id}>
                <td>
                  <Status shown={showEvent(event.status)} />
                </td>
                <td className="strong">{event.name}</td>
                <td className="first anywhere">
                  <code>{event.data}</code>
                  {event.statusDescription && <p className="soft small anywhere">{event.statusDescription}</p>}
                </td>
                <td>
                  <Labels labels={event.labels} />
                </td>
                <td className="soft nowrap">
                  {event.triggerCommitHash && <Hash hash={event.triggerCommitHash} />} <Time at={event.createdAt} />
                </td>
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

function NoEvent({ isFiltered }: { isFiltered: boolean }): ReactNode {
  if (isFiltered)
    return (
      <Empty title="No event is like that">
        <p>
          There may be others: <Link to="/events">show all events</Link>.
        </p>
      </Empty>
    )
  return (
    <Empty title="There is no event yet">
      <p>An event tells others that something is new. A build registers one with <code>pipectl event register</code>; an application after each deployment that succeeds, when its file says so:</p>
      <pre className="text-block example" tabIndex={0} aria-label="An event in an application file">
        {EXAMPLE}
      </pre>
    </Empty>
  )
}
