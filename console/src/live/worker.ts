// SPDX-License-Identifier: Apache-2.0
// All tabs of a browser share this worker, and with it one stream.
import { StreamHolder } from './holder'
import type { HolderMessage, PageMessage } from './messages'

const holder = new StreamHolder()
const scope = self as unknown as { onconnect: (event: MessageEvent) => void }

scope.onconnect = (event) => {
  const port = event.ports[0]
  if (!port) return
  const post = (message: HolderMessage): void => port.postMessage(message)
  port.onmessage = (received: MessageEvent<PageMessage>) => holder.receive(received.data, post)
}
