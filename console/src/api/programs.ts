// SPDX-License-Identifier: Apache-2.0
// The service of programs, which previews are asked of; apart, so that only the page that needs it loads it.
import { createClient } from '@connectrpc/connect'
import { transport } from './clients'
import { APIService } from './gen/pipecd_wire/apiservice/service_pb'

export const programs = createClient(APIService, transport)
