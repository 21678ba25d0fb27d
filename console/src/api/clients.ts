// SPDX-License-Identifier: Apache-2.0
// The services of the control plane that served this page. Calls carry the session's cookie by themselves.
import { Code, ConnectError, createClient, type Interceptor } from '@connectrpc/connect'
import { createGrpcWebTransport } from '@connectrpc/connect-web'
import { AccessService, ApiKeyService } from './gen/pipecd_wire/pipecd/api/access_pb'
import { ApplicationService, DeploymentService, PipedService, ProjectService } from './gen/pipecd_wire/pipecd/api/api_pb'
import { StageLogService } from './gen/pipecd_wire/pipecd/api/logs_pb'
import { OverviewService } from './gen/pipecd_wire/pipecd/api/overview_pb'
import { WindowService } from './gen/pipecd_wire/pipecd/api/windows_pb'
import { WebService } from './gen/pipecd_wire/webservice/service_pb'

const IDEMPOTENCY_KEY = 'pipecd-idempotency-key'
const READS = /^(Get|List|Search|Read|Explain|Preview|Watch|Follow|Open)/

type Listener = () => void
const signedOutListeners = new Set<Listener>()

/** Calls the listener whenever the server says that there is no session any more. */
export function onSignedOut(listener: Listener): () => void {
  signedOutListeners.add(listener)
  return () => signedOutListeners.delete(listener)
}

export function tellSignedOut(): void {
  for (const listener of signedOutListeners) listener()
}

const watchSession: Interceptor = (next) => async (request) => {
  try {
    return await next(request)
  } catch (error) {
    if (ConnectError.from(error).code === Code.Unauthenticated) tellSignedOut()
    throw error
  }
}

const addIdempotencyKey: Interceptor = (next) => (request) => {
  if (!READS.test(request.method.name)) request.header.set(IDEMPOTENCY_KEY, makeKey())
  return next(request)
}

function makeKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

export const transport = createGrpcWebTransport({
  baseUrl: location.origin,
  interceptors: [watchSession, addIdempotencyKey],
  defaultTimeoutMs: 30_000,
})

/** For what a piped is asked: it renders, and says itself when it takes too long. */
export const PATIENT = { timeoutMs: 130_000 }

export const access = createClient(AccessService, transport)
export const apiKeys = createClient(ApiKeyService, transport)
export const applications = createClient(ApplicationService, transport)
export const deployments = createClient(DeploymentService, transport)
export const logs = createClient(StageLogService, transport)
export const overview = createClient(OverviewService, transport)
export const pipeds = createClient(PipedService, transport)
export const project = createClient(ProjectService, transport)
export const web = createClient(WebService, transport)
export const windows = createClient(WindowService, transport)
