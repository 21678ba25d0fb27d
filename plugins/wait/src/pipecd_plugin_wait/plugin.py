# SPDX-License-Identifier: Apache-2.0
"""WAIT: hold the pipeline for a fixed time."""

from pipecd_sdk import Duration, Report, StageConfig, StageContext, StagePlugin, serve, stage


class WaitConfig(StageConfig):
    """The options of WAIT."""

    duration: Duration
    """How long to hold the pipeline, e.g. `90s` or `5m`."""

    def check(self, report: Report) -> None:
        if not report.broken("duration") and self.duration < Duration():
            report.fault("duration", message=f"must be longer than 0s: {self.duration}")


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
    """The executable `pipecd-plugin-wait`."""
    serve(Wait(), version="0.1.0")


if __name__ == "__main__":
    main()
