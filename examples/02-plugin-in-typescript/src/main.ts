// SPDX-License-Identifier: Apache-2.0
// The process: started as `hello-ts start --piped-plugin-service ADDRESS --config JSON`, ended by SIGTERM.

import { parseArgs } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { Piped } from "./piped";
import { onlyFromPiped, ourProof } from "./secrets";
import { handlers } from "./service";
import { DeploymentService } from "./wire";

const GRACE_MS = 15_000;

// Agents have more flags than these two, and will have others: what is unknown is let be.
const { values } = parseArgs({
  strict: false,
  options: { "piped-plugin-service": { type: "string" }, config: { type: "string" } },
});
const { "piped-plugin-service": address, config } = values;
if (typeof address !== "string" || typeof config !== "string") {
  console.error("usage: hello-ts start --piped-plugin-service ADDRESS --config JSON");
  process.exit(2);
}
const { port } = JSON.parse(config) as { port: number };

const stopping = new AbortController();
const server = new grpc.Server({ interceptors: onlyFromPiped() });
server.addService(DeploymentService.service, handlers(new Piped(address, ourProof()), stopping.signal));
// `localhost` is what agents dial, in either family; no other machine can reach it.
server.bindAsync(`localhost:${port}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (!error) return;
  console.error(`cannot serve on port ${port}: ${error.message}`);
  process.exit(1);
});

for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, stop);

function stop(): void {
  stopping.abort();
  server.tryShutdown(() => process.exit(0));
  setTimeout(() => process.exit(1), GRACE_MS).unref();
}
