// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from 'vitest'
import { ProjectRBACPolicy_Action as Action, ProjectRBACResource_ResourceType as Resource } from '../src/api/gen/pipecd_wire/model/project_pb'
import { makeField, type Policy, toPolicies, toTable } from '../src/model/roles'

const plain: Policy = { resources: [{ type: Resource.APPLICATION, labels: {} }, { type: Resource.EVENT, labels: {} }], actions: [Action.GET, Action.LIST] }
const labelled: Policy = { resources: [{ type: Resource.DEPLOYMENT, labels: { env: 'production' } }], actions: [Action.UPDATE] }
const everything: Policy = { resources: [{ type: Resource.ALL, labels: {} }], actions: [Action.GET] }
const wholly: Policy = { resources: [{ type: Resource.PIPED, labels: {} }], actions: [Action.ALL] }

describe('the table of a role', () => {
  test('has a field for each action of each resource', () => {
    const { fields, others } = toTable([plain])
    expect(fields).toEqual(new Set([Resource.APPLICATION, Resource.EVENT].flatMap((type) => [makeField(type, Action.GET), makeField(type, Action.LIST)])))
    expect(others).toEqual([])
  })

  test('keeps what it cannot show as it is', () => {
    const table = toTable([labelled, plain, everything, wholly])
    expect(table.others).toEqual([labelled, everything, wholly])
    expect(toPolicies(table).slice(-3)).toEqual([labelled, everything, wholly])
  })

  test('comes back the same', () => {
    const table = toTable([plain, labelled])
    expect(toTable(toPolicies(table))).toEqual(table)
  })
})
