// SPDX-License-Identifier: Apache-2.0
// What really runs of an application: every node opens with its details.
import { type ReactNode, useEffect, useMemo, useState } from 'react'
import { applications } from '../api/clients'
import { explainShortly, isNotFound } from '../api/errors'
import type { OpenResourceResponse } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import { Kind, ofThing } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { useSearch } from '../lib/router'
import { useSession } from '../lib/session'
import { buildTrees, listResources, type Resource, type TreeNode } from '../model/livestate'
import { showHealth } from '../model/status'
import { Copy, DiffView, Empty, ErrorBox, Loading, Panel, Status, Time } from './basics'
import { Dialog } from './dialogs'
import { Icon } from './icons'

const MOST_OPEN = 200

export function LiveTree({ applicationId, labels }: { applicationId: string; labels: Record<string, string> }): ReactNode {
  const [search, setSearch] = useSearch()
  const { data, error, again } = useQuery(`live/${applicationId}`, () => applications.getLiveState({ applicationId }), ofThing(applicationId, Kind.LIVE_STATE))
  const resources = useMemo(() => (data?.snapshot ? listResources(data.snapshot) : []), [data])
  const groups = useMemo(() => buildTrees(resources), [resources])
  const opened = resources.find((each) => formatKey(each) === search.get('resource'))
  const open = (resource: Resource): void => setSearch({ resource: formatKey(resource) })
  return (
    <Panel title="What runs" count={resources.length > 0 ? `${resources.length} resources` : undefined} actions={data?.snapshot?.version && <span className="soft small">as of <Time at={data.snapshot.version.timestamp} /></span>}>
      {error !== undefined && isNotFound(error) ? (
        <Empty title="Nothing is known yet">
          <p>Its piped tells what runs once it was deployed, if the plugin of its platform can see it.</p>
        </Empty>
      ) : error !== undefined && !data ? (
        <div className="body">
          <ErrorBox error={error} again={again} />
        </div>
      ) : !data ? (
        <Loading />
      ) : groups.length === 0 ? (
        <Empty title="Nothing runs">
          <p>The platform has no resource of this application.</p>
        </Empty>
      ) : (
        groups.map((group) => (
          <div key={`${group.plugin}/${group.target}`} className="tree-group">
            {(group.target || group.plugin) && (
              <h3>
                {group.target || 'everywhere'} <span className="soft small">{group.plugin}</span>
              </h3>
            )}
            <ul className="tree" aria-label={`Resources at ${group.target || 'the platform'}`}>
              {group.roots.map((node) => (
                <Branch key={node.resource.id} node={node} onOpen={open} isOpenAtFirst={group.count <= MOST_OPEN} />
              ))}
            </ul>
          </div>
        ))
      )}
      {opened && <Details applicationId={applicationId} resource={opened} labels={labels} onClose={() => setSearch({ resource: '' })} />}
    </Panel>
  )
}

function formatKey(resource: Resource): string {
  return `${resource.plugin}/${resource.target}/${resource.id}`
}

function Branch({ node, onOpen, isOpenAtFirst }: { node: TreeNode; onOpen: (resource: Resource) => void; isOpenAtFirst: boolean }): ReactNode {
  const [isOpen, setOpen] = useState(isOpenAtFirst)
  const { resource, children } = node
  return (
    <li>
      <div className="row tight tree-row">
        {children.length > 0 ? (
          <button type="button" className="plain tree-toggle" aria-expanded={isOpen} aria-label={`What belongs to ${resource.name}`} onClick={() => setOpen(!isOpen)}>
            <Icon name={isOpen ? 'down' : 'right'} />
          </button>
        ) : (
          <span className="tree-toggle" />
        )}
        <Status shown={showHealth(resource.health)}>
          <span className="hidden-text">{showHealth(resource.health).word}</span>
        </Status>
        <button type="button" className="link anywhere" onClick={() => onOpen(resource)}>
          {resource.name}
        </button>
        <span className="soft small">{resource.type}</span>
        {resource.healthText && <span className="soft small cut">{resource.healthText}</span>}
      </div>
      {isOpen && children.length > 0 && (
        <ul>
          {children.map((child) => (
            <Branch key={child.resource.id} node={child} onOpen={onOpen} isOpenAtFirst={isOpenAtFirst} />
          ))}
        </ul>
      )}
    </li>
  )
}

function Details({ applicationId, resource, labels, onClose }: { applicationId: string; resource: Resource; labels: Record<string, string>; onClose: () => void }): ReactNode {
  const session = useSession()
  const mayOpen = session.can('ApplicationService/OpenResource', labels)
  const [answer, setAnswer] = useState<OpenResourceResponse>()
  const [error, setError] = useState('')
  useEffect(() => {
    if (!mayOpen) return
    let isGone = false
    applications.openResource({ applicationId, resourceId: resource.id, pluginName: resource.plugin, deployTarget: resource.target }).then(
      (found) => !isGone && setAnswer(found),
      (failure: unknown) => !isGone && setError(explainShortly(failure)),
    )
    return () => {
      isGone = true
    }
  }, [applicationId, resource.id, resource.plugin, resource.target, mayOpen])
  const details = answer?.details
  return (
    <Dialog title={resource.name} onClose={onClose} isWide>
      <div className="row">
        <Status shown={showHealth(resource.health)} pill />
        <span className="soft">{resource.type}</span>
        {resource.target && <span className="soft">at {resource.target}</span>}
        <span className="soft">
          since <Time at={resource.createdAt} />
        </span>
      </div>
      {resource.healthText && <p className="anywhere">{resource.healthText}</p>}
      {Object.keys(resource.metadata).length > 0 && (
        <dl className="facts">
          {Object.entries(resource.metadata).map(([key, value]) => (
            <div className="contents" key={key}>
              <dt>{key}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      {!mayOpen && <p className="soft">You have no right to open its manifest, events and output.</p>}
      {mayOpen && !details && !error && <Loading lines={4} />}
      {error && <p className="wait anywhere">{error}</p>}
      {details?.difference !== undefined && details.difference !== '' && (
        <section className="stack">
          <h3>Differs from git (- runs, + in git)</h3>
          <DiffView text={details.difference} />
        </section>
      )}
      {details && details.events.length > 0 && (
        <section className="stack">
          <h3>Events</h3>
          <ul className="list panel">
            {details.events.map((event, index) => (
              <li key={index}>
                <div className="row">
                  <span className="strong">{event.reason}</span>
                  <span className="soft small push">
                    {event.count > 1 && `${event.count} times, `}
                    <Time at={event.at} />
                  </span>
                </div>
                <p className="anywhere">{event.message}</p>
              </li>
            ))}
          </ul>
        </section>
      )}
      {details?.logs.map((log) => (
        <section className="stack" key={`${log.container}/${log.previous}`}>
          <h3>
            Output of {log.container}
            {log.previous && ' (the one before)'}
          </h3>
          <pre className="text-block" tabIndex={0}>
            {log.text}
          </pre>
        </section>
      ))}
      {details?.manifest && (
        <section className="stack">
          <div className="row">
            <h3>Manifest</h3>
            <Copy text={details.manifest} what="the manifest" />
          </div>
          <pre className="text-block" tabIndex={0}>
            {details.manifest}
          </pre>
        </section>
      )}
      {details?.notes.map((note) => (
        <p className="soft" key={note}>
          {note}
        </p>
      ))}
      <div className="buttons">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  )
}
