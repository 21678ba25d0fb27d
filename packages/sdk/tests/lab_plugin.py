# SPDX-License-Identifier: Apache-2.0
"""A plugin for the SDK's own tests, run as a program: one stage for each thing to look at."""

import asyncio
import os

from pipecd_sdk import (
    Duration,
    Exit,
    Outcome,
    PluginConfig,
    Skip,
    StageConfig,
    StageContext,
    StageFailedError,
    StagePlugin,
    serve,
    stage,
)


class LabPluginConfig(PluginConfig):
    greeting: str = "hello"
    limit: int = 3


class LabConfig(StageConfig):
    lines: int = 0
    linger: Duration = Duration()
    outcome: str = ""


class Lab(StagePlugin):
    config: LabPluginConfig

    @stage("LAB_TELL")
    async def tell(self, ctx: StageContext, config: LabConfig) -> Outcome | None:
        """Say what it was given, and end as told."""
        ctx.log.info("%s %d", self.config.greeting, self.config.limit)
        ctx.log.info("token: %s", os.environ.get("PIPECD_PLUGIN_TOKEN"))
        ctx.log.info("targets: %s", [target.name for target in ctx.targets])
        ctx.log.info("running: %s", ctx.source.running and ctx.source.running.commit_hash)
        ctx.log.info("quick sync: %s", ctx.quick_sync)
        match config.outcome:
            case "exit":
                return Exit
            case "skip":
                return Skip
            case "fail":
                raise StageFailedError("it went wrong", hint="try harder")
            case "bug":
                raise ZeroDivisionError("a secret in the text of an error")
        return None

    @stage("LAB_FLOOD")
    async def flood(self, ctx: StageContext, config: LabConfig) -> None:
        for number in range(config.lines):
            await ctx.log.write(f"line {number}\n")

    @stage("LAB_WAIT", needs_files=False)
    async def wait(self, ctx: StageContext, config: LabConfig) -> None:
        """Wait for ever; take `linger` to end."""
        ctx.log.info("waiting")
        try:
            await asyncio.Event().wait()
        finally:
            ctx.log.info("leaving")
            await asyncio.sleep(config.linger.total_seconds())
            ctx.log.info("left")

    @stage("LAB_FINISH", finishes_on_stop=True)
    async def finish(self, ctx: StageContext, config: LabConfig) -> None:
        """Take `linger`, also when the plugin is told to stop."""
        ctx.log.info("working")
        try:
            await asyncio.sleep(config.linger.total_seconds())
        except asyncio.CancelledError:
            ctx.log.info("interrupted, ending: %s", ctx.is_ending())
            raise
        ctx.log.success("finished")


if __name__ == "__main__":
    serve(Lab(), version="1.2.3")
