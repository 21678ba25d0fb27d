// SPDX-License-Identifier: Apache-2.0
// The stage HELLO_TS: its options, and what it does with them.

import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import type { Stage } from "./piped";
import { Refusal } from "./wire";

export const NAME = "HELLO_TS";
const LONGEST = 3600;

export interface Options {
  seconds: number;
}

/** What people wrote under the stage's `with`. */
export function optionsOf(config: Buffer): Options {
  let given: unknown;
  try {
    given = JSON.parse(config.toString() || "{}");
  } catch {
    throw wrong("the options are not JSON");
  }
  if (typeof given !== "object" || given === null) throw wrong("the options must be a mapping");
  const { seconds, ...others } = given as Record<string, unknown>;
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined) throw wrong(`unknown option '${unknown}' (there is 'seconds')`);
  if (typeof seconds !== "number" || seconds < 0 || seconds > LONGEST) {
    throw wrong(`'seconds' must be a number from 0 to ${LONGEST}`);
  }
  return { seconds };
}

/** Waits, with a line for each second. It may be called again for a stage that was begun: it goes on then. */
export async function hello(stage: Stage, options: Options, signal: AbortSignal): Promise<void> {
  const end = (await stage.began()) + options.seconds * 1000;
  for (let left = end - Date.now(); left > 0; left = end - Date.now()) {
    await stage.log(`${Math.ceil(left / 1000)} of ${options.seconds} seconds to go`);
    await sleep(Math.min(left, 1000), undefined, { signal });
  }
}

function wrong(sentence: string): Refusal {
  return new Refusal(status.INVALID_ARGUMENT, `${NAME}: ${sentence}`);
}
