// SPDX-License-Identifier: Apache-2.0
// The two secrets that piped starts this process with: each side proves itself to the other by one, on every call.

import { createHash, timingSafeEqual } from "node:crypto";
import * as grpc from "@grpc/grpc-js";

const OURS = "pipecd-plugin-token";
const PIPEDS = "pipecd-piped-token";

/** Takes a secret out of the environment, where a process that we start would find it. Empty under a Go agent. */
function take(variable: string): string {
  const value = process.env[variable] ?? "";
  delete process.env[variable];
  return value;
}

/** What goes with every call to piped. */
export function ourProof(): grpc.Metadata {
  const metadata = new grpc.Metadata();
  const secret = take("PIPECD_PLUGIN_TOKEN");
  if (secret) metadata.set(OURS, secret);
  return metadata;
}

/** Refuses every call that does not come from piped, before its message is read. A Go agent proves nothing. */
export function onlyFromPiped(): grpc.ServerInterceptor[] {
  const secret = take("PIPECD_PIPED_TOKEN");
  if (!secret) return [];
  const interceptor: grpc.ServerInterceptor = (_method, call) =>
    new grpc.ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, next) => {
            if (equal(String(metadata.get(PIPEDS)[0] ?? ""), secret)) next(metadata);
            else call.sendStatus({ code: grpc.status.UNAUTHENTICATED, details: "only piped may call this plugin" });
          },
        }),
    });
  return [interceptor];
}

/** The same time for every wrong guess. */
function equal(given: string, secret: string): boolean {
  const [one, other] = [given, secret].map((text) => createHash("sha256").update(text).digest());
  return timingSafeEqual(one!, other!);
}
