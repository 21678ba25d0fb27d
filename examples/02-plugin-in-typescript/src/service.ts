// SPDX-License-Identifier: Apache-2.0
// DeploymentService: the six calls of an agent, for a plugin that offers one stage and no platform.

import * as grpc from "@grpc/grpc-js";
import { hello, NAME, optionsOf } from "./hello";
import { type Piped, Stage } from "./piped";
import { type PlannedStages, Refusal, type StageInput } from "./wire";

type Asked = { input: StageInput | null };

/** The handlers. `stopping` is aborted when the process has to end. */
export function handlers(piped: Piped, stopping: AbortSignal): grpc.UntypedServiceImplementation {
  return {
    fetchDefinedStages: answer(() => ({ stages: [NAME] })),
    // It deploys nothing itself: versions, strategy and quick sync are other plugins' affairs.
    determineVersions: answer((asked: Asked) => required(asked) && { versions: [] }),
    determineStrategy: answer((asked: Asked) => required(asked) && { unsupported: true }),
    buildQuickSyncStages: answer(() => ({ stages: [] })),
    buildPipelineSyncStages: answer((asked: PlannedStages) => ({ stages: asked.stages.map(planned) })),
    executeStage: answer((asked: Asked, cancelled) => {
      const input = required(asked);
      if (!input.stage) throw new Refusal(grpc.status.INVALID_ARGUMENT, "there is no stage");
      offered(input.stage.name);
      return execute(piped, input, cancelled, stopping);
    }),
  };
}

async function execute(piped: Piped, input: StageInput, cancelled: AbortSignal, stopping: AbortSignal): Promise<object> {
  const options = optionsOf(input.stageConfig);
  const signal = AbortSignal.any([cancelled, stopping]);
  const stage = new Stage(piped, input, signal);
  try {
    await hello(stage, options, signal);
  } catch (error) {
    if (stopping.aborted) {
      // No end of the stage: the next process goes on with it.
      await stage.checkpoint();
      throw new Refusal(grpc.status.UNAVAILABLE, "plugin is stopping");
    }
    const reason = cancelled.aborted ? "cancelled" : (error as Error).message;
    await stage.close(reason, "ERROR");
    return { status: "STAGE_FAILURE", message: reason };
  }
  // Closed before the answer: piped asks for nothing after it.
  await stage.close(`Hello from TypeScript, ${input.deployment!.applicationName}`, "SUCCESS");
  return { status: "STAGE_SUCCESS" };
}

/** A stage keeps the place that it has in the whole pipeline. */
function planned(stage: PlannedStages["stages"][number]): object {
  offered(stage.name);
  optionsOf(stage.config);
  const now = Math.floor(Date.now() / 1000);
  const { name, desc, index } = stage;
  return { name, desc, index, availableOperation: "MANUAL_OPERATION_NONE", createdAt: now, updatedAt: now };
}

function offered(name: string): void {
  if (name !== NAME) throw new Refusal(grpc.status.INVALID_ARGUMENT, `this plugin has no stage '${name}'`);
}

function required(asked: Asked): StageInput {
  if (!asked.input?.deployment) throw new Refusal(grpc.status.INVALID_ARGUMENT, "there is no deployment");
  return asked.input;
}

/** A function as a handler: what it throws is the status of the call. */
function answer<Request>(
  work: (request: Request, cancelled: AbortSignal) => object | Promise<object>,
): grpc.handleUnaryCall<Request, object> {
  return async (call, callback) => {
    const cancelled = new AbortController();
    call.on("cancelled", () => cancelled.abort());
    try {
      callback(null, await work(call.request, cancelled.signal));
    } catch (error) {
      if (error instanceof Refusal) callback({ code: error.code, details: error.details });
      else callback({ code: grpc.status.INTERNAL, details: (error as Error).message });
    }
  };
}
