# SPDX-License-Identifier: Apache-2.0
"""WAIT: hold the pipeline for a fixed time."""

from typing import ClassVar

from pipecd_sdk import Duration, StageConfig, StageContext, StagePlugin, serve, stage
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

    @stage("WAIT", needs_files=False)
    async def wait(self, ctx: StageContext, config: WaitConfig) -> None:
        # Kept in the stage's metadata, so a restarted piped resumes the same wait.
        started = await ctx.metadata.get_or_set_time("startTime", ctx.clock.now)
        deadline = started + config.duration
        ctx.log.info("Waiting %s, until %s", config.duration, f"{deadline:%Y-%m-%d %H:%M:%S %Z}")
        await ctx.clock.sleep_until(deadline)


def main() -> None:
    """Runs the executable `pipecd-plugin-wait`."""
    serve(Wait())


if __name__ == "__main__":
    main()
