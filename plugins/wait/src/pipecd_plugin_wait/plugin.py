# SPDX-License-Identifier: Apache-2.0
"""WAIT: hold the pipeline for a fixed time, or until somebody skips it."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar

from pipecd_sdk import (
    CommandKind,
    Duration,
    Operation,
    Outcome,
    PipedError,
    PlannedStage,
    RequestedStage,
    Skip,
    StageConfig,
    StageContext,
    StagePlugin,
    serve,
    stage,
)
from pipecd_sdk.constraints import InRange


class WaitConfig(StageConfig):
    """The options of WAIT."""

    constraints: ClassVar = (
        InRange(key="duration", minimum=0, message="must be longer than 0s: {value}"),
    )

    duration: Duration
    """How long to hold the pipeline, e.g. `90s` or `5m`."""


class Wait(StagePlugin):
    """Holds the pipeline."""

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        for each in requested:
            yield each.to_planned(operation=Operation.SKIP)

    @stage("WAIT", needs_files=False)
    async def wait(self, ctx: StageContext, config: WaitConfig) -> Outcome | None:
        # Kept in the stage's metadata, so a restarted piped resumes the same wait.
        started = await ctx.metadata.get_or_set_time("startTime", ctx.clock.now)
        deadline = started + config.duration
        ctx.log.info("Waiting %s, until %s", config.duration, f"{deadline:%Y-%m-%d %H:%M:%S %Z}")
        async with asyncio.TaskGroup() as tasks:
            sleeping = tasks.create_task(ctx.clock.sleep_until(deadline))
            skipping = tasks.create_task(_wait_skipped(ctx))
            await asyncio.wait({sleeping, skipping}, return_when=asyncio.FIRST_COMPLETED)
            is_over = sleeping.done()
            sleeping.cancel()
            skipping.cancel()
        if is_over:
            return None
        ctx.log.info("Skipped by %s", skipping.result())
        return Skip


async def _wait_skipped(ctx: StageContext) -> str:
    """Waits until somebody skips the stage; returns their name.

    An agent that cannot tell of commands is no reason to fail: the time passes all the same.
    """
    try:
        async for command in ctx.commands:
            if command.kind is CommandKind.SKIP:
                return command.commander or "somebody"
    except PipedError as error:
        ctx.log.info("Nobody can skip this stage: %s", error)
    await asyncio.Event().wait()
    raise AssertionError


def main() -> None:
    """Runs the executable `pipecd-plugin-wait`."""
    serve(Wait())


if __name__ == "__main__":
    main()
