// SPDX-License-Identifier: Apache-2.0
// What runs of an application, as one tree for every platform.
import type { ApplicationLiveStateSnapshot } from '../api/gen/pipecd_wire/model/application_live_state_pb'
import { ResourceState_HealthStatus as Health } from '../api/gen/pipecd_wire/model/application_live_state_pb'

export interface Resource {
  id: string
  parentIds: readonly string[]
  name: string
  type: string
  health: Health
  healthText: string
  target: string
  plugin: string
  metadata: Record<string, string>
  createdAt: bigint
}

export interface TreeNode {
  resource: Resource
  children: TreeNode[]
}

export interface Group {
  /** The deploy target; empty where there is none. */
  target: string
  plugin: string
  roots: TreeNode[]
  count: number
}

/** The resources of a snapshot, those of upstream's older agents too. */
export function listResources(snapshot: ApplicationLiveStateSnapshot): Resource[] {
  const found = (snapshot.applicationLiveState?.resources ?? []).map(
    (each): Resource => ({
      id: each.id,
      parentIds: each.parentIds,
      name: each.name,
      type: each.resourceType,
      health: each.healthStatus,
      healthText: each.healthDescription,
      target: each.deployTarget,
      plugin: each.pluginName,
      metadata: each.resourceMetadata,
      createdAt: each.createdAt,
    }),
  )
  const older = [...(snapshot.kubernetes?.resources ?? []), ...(snapshot.cloudrun?.resources ?? []), ...(snapshot.lambda?.resources ?? []), ...(snapshot.ecs?.resources ?? [])]
  for (const each of older) {
    found.push({
      id: each.id,
      parentIds: each.parentIds,
      name: each.name,
      type: each.kind,
      // Theirs are unknown, healthy, other; what is other is not healthy.
      health: each.healthStatus === 1 ? Health.HEALTHY : each.healthStatus === 2 ? Health.UNHEALTHY : Health.UNKNOWN,
      healthText: each.healthDescription,
      target: '',
      plugin: '',
      metadata: {},
      createdAt: each.createdAt,
    })
  }
  return found
}

/** Trees by deploy target. A resource with several parents stands under the first; one whose parents are not there is a root. */
export function buildTrees(resources: readonly Resource[]): Group[] {
  const groups = new Map<string, Resource[]>()
  for (const resource of resources) {
    const key = `${resource.plugin}\u0000${resource.target}`
    groups.set(key, [...(groups.get(key) ?? []), resource])
  }
  return [...groups.values()].map((members) => {
    const nodes = new Map(members.map((resource) => [resource.id, { resource, children: [] } as TreeNode]))
    const roots: TreeNode[] = []
    for (const node of nodes.values()) {
      const parent = node.resource.parentIds.map((id) => nodes.get(id)).find((each) => each && each !== node && !isBelow(each, node, nodes))
      if (parent) parent.children.push(node)
      else roots.push(node)
    }
    sortNodes(roots)
    return { target: members[0]?.target ?? '', plugin: members[0]?.plugin ?? '', roots, count: members.length }
  })
}

/** Would a parent be its own ancestor through the node? */
function isBelow(parent: TreeNode, node: TreeNode, nodes: Map<string, TreeNode>): boolean {
  const seen = new Set<TreeNode>()
  const waiting: TreeNode[] = [parent]
  for (let current = waiting.pop(); current; current = waiting.pop()) {
    if (current === node) return true
    if (seen.has(current)) continue
    seen.add(current)
    for (const id of current.resource.parentIds) {
      const above = nodes.get(id)
      if (above) waiting.push(above)
    }
  }
  return false
}

function sortNodes(nodes: TreeNode[]): void {
  const rank = (node: TreeNode): number => (node.resource.health === Health.UNHEALTHY ? 0 : 1)
  nodes.sort((one, other) => rank(one) - rank(other) || one.resource.type.localeCompare(other.resource.type) || one.resource.name.localeCompare(other.resource.name))
  for (const node of nodes) sortNodes(node.children)
}
