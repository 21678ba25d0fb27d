// SPDX-License-Identifier: Apache-2.0
// Which changes are about what.
import { Change_Kind as Kind } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import type { Concern } from './query'

export { Kind }

/** Any change of one of these kinds. */
export function ofKinds(...kinds: Kind[]): Concern {
  return (change) => kinds.includes(change.kind)
}

/** A change of one of these kinds to this very thing. */
export function ofThing(id: string, ...kinds: Kind[]): Concern {
  return (change) => change.id === id && kinds.includes(change.kind)
}

export function either(...concerns: Concern[]): Concern {
  return (change) => concerns.some((concern) => concern(change))
}
