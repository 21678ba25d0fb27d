# SPDX-License-Identifier: Apache-2.0
"""WAIT: hold the pipeline for a fixed time, or until somebody skips it."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from pipecd_sdk import (
    Duration,
    Operation,
    Outcome,
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
from pipecd_sdk.kit.skipping import run_unless_skipped


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
        if who := await run_unless_skipped(ctx, ctx.clock.sleep_until(deadline)):
            ctx.log.info("Skipped by %s", who)
            return Skip
        return None


def main() -> None:
    """Runs the executable `pipecd-plugin-wait`."""
    serve(Wait())


if __name__ == "__main__":
    main()
