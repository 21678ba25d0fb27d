// SPDX-License-Identifier: Apache-2.0
// Makes dist/hello-ts: one file that node runs, with the protos inside.

import { chmodSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import protobuf from "protobufjs";
import descriptor from "protobufjs/google/protobuf/descriptor.json" with { type: "json" };

const PROTO = join(import.meta.dirname, "../../proto");
const FILES = ["pipecd_wire/plugin/deploymentapi/api.proto", "pipecd_wire/pluginservice/service.proto"];

// Our protos declare options, and so import this one, which protobufjs ships under another name.
protobuf.common("descriptor", descriptor.nested.google.nested.protobuf.nested);
const root = new protobuf.Root();
root.resolvePath = (_from, name) => (name in protobuf.common ? name : join(PROTO, name));
root.loadSync(FILES).resolveAll();

await build({
  entryPoints: ["src/main.ts"],
  outfile: "dist/hello-ts",
  bundle: true,
  platform: "node",
  target: "node20",
  banner: { js: "#!/usr/bin/env node" },
  define: { WIRE: JSON.stringify(root.toJSON()) },
});
chmodSync("dist/hello-ts", 0o755);
