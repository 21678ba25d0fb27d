// SPDX-License-Identifier: Apache-2.0
// Roles as a table of what may be done with what; what does not fit into the table is kept as it is.
import { ProjectRBACPolicy_Action as Action, ProjectRBACResource_ResourceType as Resource } from '../api/gen/pipecd_wire/model/project_pb'

export const RESOURCES = [Resource.APPLICATION, Resource.DEPLOYMENT, Resource.EVENT, Resource.PIPED, Resource.DEPLOYMENT_CHAIN, Resource.PROJECT, Resource.API_KEY, Resource.INSIGHT]
export const ACTIONS = [Action.GET, Action.LIST, Action.CREATE, Action.UPDATE, Action.DELETE]

export interface Policy {
  resources: { type: Resource; labels: Record<string, string> }[]
  actions: Action[]
}

export interface RoleTable {
  /** The fields of the table that are ticked, each named by `makeField`. */
  fields: ReadonlySet<string>
  /** Policies that the table cannot show: those with labels, and those for all actions or resources. */
  others: Policy[]
}

export function makeField(resource: Resource, action: Action): string {
  return `${resource}/${action}`
}

function fitsTable(policy: Policy): boolean {
  return policy.actions.every((action) => ACTIONS.includes(action)) && policy.resources.every((each) => RESOURCES.includes(each.type) && Object.keys(each.labels).length === 0)
}

export function toTable(policies: readonly Policy[]): RoleTable {
  const fitting = policies.filter(fitsTable)
  const fields = fitting.flatMap((policy) => policy.resources.flatMap((each) => policy.actions.map((action) => makeField(each.type, action))))
  return { fields: new Set(fields), others: policies.filter((policy) => !fitsTable(policy)) }
}

export function toPolicies({ fields, others }: RoleTable): Policy[] {
  const shown = RESOURCES.map((type) => ({ resources: [{ type, labels: {} }], actions: ACTIONS.filter((action) => fields.has(makeField(type, action))) }))
  return [...shown.filter((policy) => policy.actions.length > 0), ...others]
}

function formatAll(values: readonly number[], names: Record<number, string>): string {
  return values.map((value) => (names[value] ?? '?').toLowerCase().replaceAll('_', ' ')).join(', ')
}

export function formatActions(actions: readonly Action[]): string {
  return formatAll(actions, Action)
}

export function formatResources(resources: readonly Resource[]): string {
  return formatAll(resources, Resource)
}
