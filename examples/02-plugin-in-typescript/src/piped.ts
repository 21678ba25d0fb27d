// SPDX-License-Identifier: Apache-2.0
// What piped does for a stage: keeps its log, and the metadata by which it is continued.

import { setTimeout as sleep } from "node:timers/promises";
import * as grpc from "@grpc/grpc-js";
import { PluginService, type StageInput } from "./wire";

const CALL_MS = 15_000;
const PAUSE_MS = 500;
const LAST_LINES_MS = 10_000;
const PASSES = new Set([grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED]);

type Severity = "INFO" | "SUCCESS" | "ERROR";

export class Piped {
  private readonly client;

  constructor(address: string, private readonly proof: grpc.Metadata) {
    // It is on this machine: a proxy of the environment has no part in it.
    const options = { "grpc.enable_http_proxy": 0 };
    this.client = new PluginService(address, grpc.credentials.createInsecure(), options);
  }

  /** Calls until there is an answer: piped, or what is behind it, may be away for a while. */
  async call<Answer>(rpc: string, request: object, signal: AbortSignal): Promise<Answer> {
    for (;;) {
      signal.throwIfAborted();
      try {
        return await this.attempt<Answer>(rpc, request, signal);
      } catch (error) {
        if (!PASSES.has((error as grpc.ServiceError).code)) throw error;
      }
      await sleep(PAUSE_MS, undefined, { signal });
    }
  }

  private attempt<Answer>(rpc: string, request: object, signal: AbortSignal): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const limit = { deadline: Date.now() + CALL_MS };
      const call = this.client[rpc]!(request, this.proof, limit, (error: grpc.ServiceError | null, answer: Answer) => {
        signal.removeEventListener("abort", cancel);
        if (error) reject(error);
        else resolve(answer);
      });
      const cancel = () => call.cancel();
      signal.addEventListener("abort", cancel);
    });
  }
}

/** The stage of one ExecuteStage as piped keeps it. `signal` ends what it waits for. */
export class Stage {
  private readonly ids;
  private readonly retriedCount;
  private readonly blocks: object[] = [];
  // Microseconds: a second run of the stage begins above every index of the first.
  private index = Date.now() * 1000;

  constructor(private readonly piped: Piped, input: StageInput, private readonly signal: AbortSignal) {
    this.ids = { deploymentId: input.deployment!.id, stageId: input.stage!.id };
    this.retriedCount = input.stage!.retriedCount;
  }

  /** The time when the stage began, also when an earlier process of this plugin began it. */
  async began(): Promise<number> {
    const key = { ...this.ids, key: "startTime" };
    const kept = await this.piped.call<{ found: boolean; value: string }>("GetStageMetadata", key, this.signal);
    if (kept.found) return Date.parse(kept.value);
    const value = new Date().toISOString();
    await this.piped.call("PutStageMetadata", { ...key, value }, this.signal);
    return Date.parse(value);
  }

  /** Adds a line to the log. */
  async log(line: string): Promise<void> {
    const block = this.add(line, "INFO");
    await this.report("ReportStageLogs", { blocks: [block] }, this.signal);
    this.signal.throwIfAborted();
  }

  /** Closes the log: nobody can add to it. A Go control plane keeps for good what comes with this call, so all lines do. */
  async close(line: string, severity: Severity): Promise<void> {
    this.add(line, severity);
    await this.checkpoint(true);
  }

  /** Leaves the log open for the next process. */
  async checkpoint(completed = false): Promise<void> {
    const lines = { blocks: this.blocks, completed };
    await this.report("ReportStageLogsFromLastCheckpoint", lines, AbortSignal.timeout(LAST_LINES_MS));
  }

  private add(log: string, severity: Severity): object {
    const block = { index: this.index++, log, severity, createdAt: Math.floor(Date.now() / 1000) };
    this.blocks.push(block);
    return block;
  }

  /** A line that cannot be kept fails no stage: an earlier process may have closed the log just before it died. */
  private async report(rpc: string, lines: object, signal: AbortSignal): Promise<void> {
    const request = { ...this.ids, retriedCount: this.retriedCount, ...lines };
    await this.piped.call(rpc, request, signal).catch((error: Error) => {
      if (!this.signal.aborted) console.error(`${rpc} of ${this.ids.stageId}: ${error.message}`);
    });
  }
}
