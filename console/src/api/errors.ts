// SPDX-License-Identifier: Apache-2.0
// What an error of a call says to a person.
import { Code, ConnectError } from '@connectrpc/connect'

export interface Explanation {
  title: string
  text: string
  canRetry: boolean
}

export function explain(error: unknown): Explanation {
  const { code, rawMessage } = ConnectError.from(error)
  const text = rawMessage || 'The server gave no reason.'
  switch (code) {
    case Code.NotFound:
      return { title: 'There is no such thing', text, canRetry: false }
    case Code.PermissionDenied:
      return { title: 'You have no right to this', text: `${text} Whoever may change the project can give it to you.`, canRetry: false }
    case Code.Unauthenticated:
      return { title: 'You are signed out', text: 'Sign in again.', canRetry: false }
    case Code.FailedPrecondition:
    case Code.InvalidArgument:
    case Code.AlreadyExists:
      return { title: 'That did not work', text, canRetry: false }
    case Code.DataLoss:
      return { title: 'This is lost', text, canRetry: false }
    case Code.Unimplemented:
      return { title: 'This server is older than the page', text: 'Load the page again, or update the control plane.', canRetry: true }
    case Code.Unavailable: // an answer: it is something behind the server that is away, such as its blob store
    case Code.DeadlineExceeded:
    case Code.Unknown:
      return {
        title: code === Code.Unavailable ? 'That is not possible right now' : 'The control plane does not answer',
        text: navigator.onLine ? `${endSentence(text)} It is tried again by itself.` : 'This device is offline.',
        canRetry: true,
      }
    default:
      return { title: 'That did not work', text, canRetry: true }
  }
}

/** What the server says has no full stop. */
function endSentence(text: string): string {
  return /[.!?…]$/.test(text) ? text : `${text}.`
}

/** One sentence, for a toast. */
export function explainShortly(error: unknown): string {
  const { title, text } = explain(error)
  return title === 'That did not work' ? text : `${title}: ${text}`
}

export function isNotFound(error: unknown): boolean {
  return ConnectError.from(error).code === Code.NotFound
}

/** Whether the same call may succeed later, without anybody's doing: then it is tried again by itself. */
export function mayPass(error: unknown): boolean {
  const { code } = ConnectError.from(error)
  return code === Code.Unavailable || code === Code.DeadlineExceeded || code === Code.Unknown
}
