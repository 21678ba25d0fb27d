// SPDX-License-Identifier: Apache-2.0
// Ctrl-K: everything by name.
import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react'
import { overview, web } from './api/clients'
import { SearchApplicationsRequest_Activity, SearchApplicationsRequest_Order } from './api/gen/pipecd_wire/pipecd/api/overview_pb'
import { navigate } from './lib/router'
import { useSession } from './lib/session'
import { showApplication, showDeployment } from './model/status'
import type { Place } from './Shell'
import { Icon, type IconName } from './ui/icons'

interface Found {
  group: string
  name: string
  detail: string
  icon: IconName
  act: () => void
}

const LIMIT = 8

export function Palette({ places, onClose }: { places: Place[]; onClose: () => void }): ReactNode {
  const session = useSession()
  const [text, setText] = useState('')
  const [remote, setRemote] = useState<Found[]>([])
  const [at, setAt] = useState(0)
  const ref = useRef<HTMLDialogElement>(null)
  const listId = useId()
  useEffect(() => {
    const dialog = ref.current
    if (dialog && !dialog.open) dialog.showModal()
    return () => dialog?.close()
  }, [])
  useEffect(() => {
    let isOld = false
    const timer = setTimeout(async () => {
      const [applications, deployments] = await Promise.all([
        session.can('OverviewService/SearchApplications') ? findApplications(text) : [],
        session.can('WebService/ListDeployments') ? findDeployments(text) : [],
      ])
      if (!isOld) setRemote([...applications, ...deployments])
    }, 90)
    return () => {
      isOld = true
      clearTimeout(timer)
    }
  }, [text, session])
  const wanted = text.trim().toLowerCase()
  const pages = places
    .filter((place) => place.name.toLowerCase().includes(wanted))
    .map((place): Found => ({ group: 'Pages', name: place.name, detail: `g ${place.key}`, icon: place.icon, act: () => navigate(place.to) }))
  const found = wanted ? [...remote, ...pages] : [...pages, ...remote]
  const chosen = Math.min(at, found.length - 1)
  function act(item: Found | undefined): void {
    if (!item) return
    onClose()
    item.act()
  }
  function handleKey(event: KeyboardEvent): void {
    if (event.key === 'ArrowDown') setAt((chosen + 1) % Math.max(1, found.length))
    else if (event.key === 'ArrowUp') setAt((chosen - 1 + found.length) % Math.max(1, found.length))
    else if (event.key === 'Enter') act(found[chosen])
    else return
    event.preventDefault()
  }
  useEffect(() => {
    document.getElementById(`${listId}-${chosen}`)?.scrollIntoView({ block: 'nearest' })
  }, [chosen, listId])
  return (
    <dialog
      ref={ref}
      className="palette"
      aria-label="Find something"
      onCancel={(event) => {
        event.preventDefault()
        onClose()
      }}
      onClick={(event) => event.target === ref.current && onClose()}
    >
      <input
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls={listId}
        aria-activedescendant={found.length > 0 ? `${listId}-${chosen}` : undefined}
        aria-label="Find an application, a deployment or a page"
        placeholder="Find an application, a deployment or a page"
        value={text}
        onChange={(event) => {
          setText(event.target.value)
          setAt(0)
        }}
        onKeyDown={handleKey}
      />
      <ul id={listId} role="listbox" aria-label="Found">
        {found.map((item, index) => (
          <li key={`${item.group}${item.name}${item.detail}${index}`} id={`${listId}-${index}`} role="option" aria-selected={index === chosen} onClick={() => act(item)} onPointerMove={() => setAt(index)}>
            <Icon name={item.icon} />
            <span className="cut">{item.name}</span>
            <span className="soft small push cut">{item.detail}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p className="empty">Nothing has this name.</p>}
    </dialog>
  )
}

async function findApplications(text: string): Promise<Found[]> {
  try {
    const answer = await overview.searchApplications({
      text,
      pageSize: LIMIT,
      withoutFacets: true,
      activity: SearchApplicationsRequest_Activity.ANY,
      order: SearchApplicationsRequest_Order.URGENCY,
    })
    return answer.applications.map((found) => {
      const shown = showApplication(found.status)
      return {
        group: 'Applications',
        name: found.application?.name ?? '',
        detail: shown.word,
        icon: shown.icon,
        act: () => navigate(`/applications/${found.application?.id ?? ''}`),
      }
    })
  } catch {
    return []
  }
}

async function findDeployments(text: string): Promise<Found[]> {
  const word = text.trim()
  if (word.length < 2) return []
  try {
    if (/^[0-9a-f-]{36}$/i.test(word)) {
      const { deployment } = await web.getDeployment({ deploymentId: word })
      return deployment ? [describe(deployment)] : []
    }
    const { deployments } = await web.listDeployments({ pageSize: LIMIT, options: { applicationName: word } })
    return deployments.map(describe)
  } catch {
    return []
  }
}

function describe(deployment: { id: string; applicationName: string; status: number; trigger?: { commit?: { message: string } } }): Found {
  const shown = showDeployment(deployment.status)
  const message = deployment.trigger?.commit?.message.split('\n')[0] ?? ''
  return {
    group: 'Deployments',
    name: `${deployment.applicationName}: ${message}`,
    detail: shown.word,
    icon: shown.icon,
    act: () => navigate(`/deployments/${deployment.id}`),
  }
}
