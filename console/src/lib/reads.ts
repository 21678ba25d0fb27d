// SPDX-License-Identifier: Apache-2.0
// What the pages that are opened first read, by the key under which it is kept.
import { overview, web } from '../api/clients'

export const OVERVIEW = { key: 'overview', read: () => overview.getOverview({ most: 8 }) }

export function deploymentOf(id: string) {
  return { key: `deployment/${id}`, read: () => web.getDeployment({ deploymentId: id }) }
}
