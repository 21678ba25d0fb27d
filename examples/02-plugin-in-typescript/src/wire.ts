// SPDX-License-Identifier: Apache-2.0
// The wire: the two services, and what this plugin reads and writes of their messages.

import * as grpc from "@grpc/grpc-js";
import { fromJSON } from "@grpc/proto-loader";

/** All messages and services, put here by build.mjs. */
declare const WIRE: Parameters<typeof fromJSON>[0];

// Times and log indexes are below 2^53, so plain numbers hold them.
const loaded = fromJSON(WIRE, { longs: Number, enums: String, defaults: true });
const packages = grpc.loadPackageDefinition(loaded);

export const DeploymentService = service("grpc.plugin.deploymentapi.v1alpha1.DeploymentService");
export const PluginService = service("grpc.piped.service.PluginService");

function service(name: string): grpc.ServiceClientConstructor {
  let found: unknown = packages;
  for (const part of name.split(".")) found = (found as Record<string, unknown>)[part];
  return found as grpc.ServiceClientConstructor;
}

/** The stage of a deployment that a call is about. */
export interface StageInput {
  deployment: { id: string; applicationName: string } | null;
  stage: { id: string; name: string; retriedCount: number } | null;
  stageConfig: Buffer;
}

export interface PlannedStages {
  stages: { name: string; desc: string; index: number; config: Buffer }[];
}

/** An answer that is not OK. */
export class Refusal extends Error {
  constructor(readonly code: grpc.status, readonly details: string) {
    super(details);
  }
}
