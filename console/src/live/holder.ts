// SPDX-License-Identifier: Apache-2.0
// Holds the one stream of this browser: changes of the project, and the new lines of the logs that pages look at.
//
// It runs in a SharedWorker, or in the page itself where there is none. A browser allows six connections to one server
// over all tabs, and a stream takes one as long as it is open: so there is one, whatever the number of tabs.
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { createGrpcWebTransport } from '@connectrpc/connect-web'
import { Change_Kind, ProjectService, type WatchChangesResponse } from '../api/gen/pipecd_wire/pipecd/api/api_pb'
import { Pace } from './pace'
import { type Connection, formatLogRef, type HolderMessage, type LogRef, type PageMessage } from './messages'

export type Post = (message: HolderMessage) => void

interface Followed {
  log: LogRef
  nextLine: number
  followers: Map<Post, number>
}

const KEEP_ALIVE_SECONDS = 10
const SILENCE_MS = 25_000
const SETTLE_MS = 15
const MOST_LOGS = 20
/** All but those that say that a log has grown: the lines of logs that somebody looks at come by themselves. */
const KINDS = Object.values(Change_Kind).filter((kind): kind is Change_Kind => typeof kind === 'number' && kind !== Change_Kind.KIND_UNSPECIFIED && kind !== Change_Kind.STAGE_LOG)

export class StreamHolder {
  private readonly client = createClient(ProjectService, createGrpcWebTransport({ baseUrl: self.location.origin }))
  private readonly pages = new Set<Post>()
  private readonly followed = new Map<string, Followed>()
  private readonly pace = new Pace()
  private connection: Connection = 'connecting'
  private cursor = ''
  private current: AbortController | undefined
  private wake: (() => void) | undefined
  private running = false
  private hasBeenOnline = false
  private reopening: ReturnType<typeof setTimeout> | undefined

  receive(message: PageMessage, post: Post): void {
    switch (message.type) {
      case 'hello':
        this.pages.add(post)
        post({ type: 'connection', connection: this.connection })
        if (!this.running) void this.run()
        break
      case 'bye':
        this.forget(post)
        break
      case 'retry':
        this.pace.reset()
        if (this.connection === 'signed-out') {
          this.cursor = ''
          this.tell('connecting')
        }
        if (!this.running) void this.run()
        this.wake?.()
        break
      case 'follow':
        this.follow(message.log, message.firstLine, post)
        break
      case 'unfollow':
        this.unfollow(formatLogRef(message.log), post)
        break
    }
  }

  private forget(post: Post): void {
    this.pages.delete(post)
    for (const key of [...this.followed.keys()]) this.unfollow(key, post)
    if (this.pages.size === 0) this.current?.abort()
  }

  private follow(log: LogRef, firstLine: number, post: Post): void {
    const key = formatLogRef(log)
    const known = this.followed.get(key)
    if (known) {
      known.followers.set(post, firstLine)
      if (firstLine >= known.nextLine) return
      known.nextLine = firstLine
    } else {
      this.followed.set(key, { log, nextLine: firstLine, followers: new Map([[post, firstLine]]) })
    }
    this.reopenSoon()
  }

  private unfollow(key: string, post: Post): void {
    const known = this.followed.get(key)
    if (!known) return
    known.followers.delete(post)
    // The stream goes on with it until something else opens a new one: lines that nobody wants cost little.
    if (known.followers.size === 0) this.followed.delete(key)
  }

  private reopenSoon(): void {
    clearTimeout(this.reopening)
    this.reopening = setTimeout(() => {
      this.current?.abort('other logs')
      this.wake?.()
    }, SETTLE_MS)
  }

  private isSignedOut(): boolean {
    return this.connection === 'signed-out'
  }

  private tell(connection: Connection): void {
    if (connection === this.connection) return
    this.connection = connection
    this.post({ type: 'connection', connection })
  }

  private post(message: HolderMessage): void {
    for (const page of this.pages) page(message)
  }

  /** Keeps the stream open as long as there are pages and a session. */
  private async run(): Promise<void> {
    this.running = true
    try {
      while (this.pages.size > 0 && !this.isSignedOut()) {
        const isOpenedAnew = await this.stream()
        if (!isOpenedAnew && !this.isSignedOut()) await this.rest()
      }
    } finally {
      this.running = false
    }
  }

  /** Reads one stream to its end. Returns whether another one is wanted at once. */
  private async stream(): Promise<boolean> {
    const controller = new AbortController()
    this.current = controller
    const logs = [...this.followed.values()].slice(-MOST_LOGS)
    let watchdog = setTimeout(() => controller.abort('silence'), SILENCE_MS)
    try {
      const request = {
        cursor: this.cursor,
        keepAliveSeconds: KEEP_ALIVE_SECONDS,
        kinds: KINDS,
        logs: logs.map(({ log, nextLine }) => ({
          deploymentId: log.deploymentId,
          stageId: log.stageId,
          retriedCount: log.attempt,
          firstLine: BigInt(nextLine),
        })),
      }
      for await (const response of this.client.watchChanges(request, { signal: controller.signal })) {
        clearTimeout(watchdog)
        watchdog = setTimeout(() => controller.abort('silence'), SILENCE_MS)
        this.pace.reset()
        this.take(response, logs)
      }
      return false
    } catch (error) {
      if (controller.signal.reason === 'other logs') return true
      if (ConnectError.from(error).code === Code.Unauthenticated) {
        this.cursor = ''
        this.tell('signed-out')
      }
      return false
    } finally {
      clearTimeout(watchdog)
      this.current = undefined
    }
  }

  private take(response: WatchChangesResponse, logs: Followed[]): void {
    const comesBack = this.connection !== 'online'
    this.tell('online')
    // A stream that went on from a cursor has missed nothing; else everything that is shown may be old.
    const mayHaveMissed = response.readAgain || (comesBack && this.hasBeenOnline && this.cursor === '')
    this.hasBeenOnline = true
    if (response.cursor) this.cursor = response.cursor
    if (mayHaveMissed) this.post({ type: 'read-again' })
    if (response.changes.length > 0)
      this.post({ type: 'changes', changes: response.changes.map(({ kind, id }) => ({ kind, id })) })
    for (const news of response.newLines) {
      const followed = logs[news.place]
      if (!followed) continue
      const firstLine = Number(news.firstLine)
      const lines = news.blocks.map((block, index) => ({
        number: firstLine + index,
        text: block.log,
        severity: block.severity,
        at: Number(block.createdAt),
      }))
      followed.nextLine = Math.max(followed.nextLine, firstLine + lines.length)
      const message: HolderMessage = {
        type: 'lines',
        log: followed.log,
        lines: { firstLine, lines, total: Number(news.totalLines), completed: news.completed, refusal: news.refusal },
      }
      for (const page of followed.followers.keys()) page(message)
    }
  }

  /** Waits before the next try; `retry` ends the wait. */
  private async rest(): Promise<void> {
    if (this.pages.size === 0) return
    this.tell('offline')
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, this.pace.next())
      this.wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    this.wake = undefined
  }
}
