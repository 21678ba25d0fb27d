# SPDX-License-Identifier: Apache-2.0
"""SCRIPT_RUN: run any commands in the pipeline, and others when it is rolled back.

And CUSTOM_SYNC of older pipelines, whose rollback is the script that ran before.
"""

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from pipecd_plugin_scriptrun.config import ScriptConfig, ScriptRunConfig
from pipecd_plugin_scriptrun.customsync import (
    CUSTOM_SYNC,
    CUSTOM_SYNC_ROLLBACK,
    CustomSyncConfig,
    script_before,
)
from pipecd_plugin_scriptrun.environment import script_environment
from pipecd_plugin_scriptrun.script import format_commands, shell_text
from pipecd_sdk import (
    PlannedStage,
    RequestedStage,
    StageContext,
    StageFailedError,
    StagePlugin,
    serve,
    stage,
)
from pipecd_sdk.scripts.environment import locate_scripts
from pipecd_sdk.scripts.once import ROLLBACK_PREFIX, StageScript, was_started
from pipecd_sdk.scripts.prefork import SHIMS
from pipecd_sdk.scripts.records import KEEP_RECORDS_SECONDS, EndRecord, sweep
from pipecd_sdk.scripts.shim_client import Script

SCRIPT_RUN: Final = "SCRIPT_RUN"
ROLLBACK: Final = "SCRIPT_RUN_ROLLBACK"


class ScriptRun(StagePlugin):
    """Runs scripts, each at most once."""

    config: ScriptRunConfig

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        with suppress(RuntimeError, OSError):  # without an event loop, or without room
            SHIMS.prepare()
        yield from (each.to_planned() for each in requested)
        if rollback:
            for each in requested:
                if each.name == SCRIPT_RUN and each.config.rollback_commands:
                    yield each.to_rollback(ROLLBACK, desc="Run the script's onRollback")
            for each in [each for each in requested if each.name == CUSTOM_SYNC][:1]:
                yield each.to_rollback(
                    CUSTOM_SYNC_ROLLBACK, desc="Run the script of what ran before"
                )

    @stage(SCRIPT_RUN, finishes_on_stop=True)
    async def run(self, ctx: StageContext, config: ScriptConfig) -> None:
        await self._run(ctx, config, config.commands, "")

    @stage(ROLLBACK, rollback=True, finishes_on_stop=True)
    async def roll_back(self, ctx: StageContext, config: ScriptConfig) -> None:
        await self._script(ctx, config, (), ROLLBACK_PREFIX).end_others()
        if await self._was_started(ctx):
            await self._run(ctx, config, config.rollback_commands, ROLLBACK_PREFIX, rollback=True)

    @stage(CUSTOM_SYNC, finishes_on_stop=True)
    async def sync(self, ctx: StageContext, config: CustomSyncConfig) -> None:
        await self._run(ctx, config.script(), (config.run,), "")

    @stage(CUSTOM_SYNC_ROLLBACK, rollback=True, finishes_on_stop=True)
    async def sync_back(self, ctx: StageContext, config: CustomSyncConfig) -> None:
        await self._script(ctx, config.script(), (), ROLLBACK_PREFIX).end_others()
        if await self._was_started(ctx):
            script = script_before(ctx.source.running)
            commands = script.commands
            await self._run(ctx, script, commands, ROLLBACK_PREFIX, rollback=True, before=True)

    async def _was_started(self, ctx: StageContext) -> bool:
        if await was_started(ctx):
            return True
        ctx.log.info("The script had not been started: there is nothing to roll back")
        return False

    def _script(
        self, ctx: StageContext, config: ScriptConfig, commands: Sequence[str], prefix: str
    ) -> StageScript:
        return StageScript(
            ctx=ctx,
            scripts=locate_scripts(),
            prefix=prefix,
            kill_grace_seconds=self.config.kill_grace.total_seconds(),
            heading=["Running:", *format_commands(commands)],
            continue_interrupted=lambda: self._continue_interrupted(ctx, config),
        )

    async def _run(
        self,
        ctx: StageContext,
        config: ScriptConfig,
        commands: Sequence[str],
        prefix: str,
        *,
        rollback: bool = False,
        before: bool = False,
    ) -> None:
        """Runs a script; with `before`, in the files of the running commit, not of the target."""
        # The target commit also for a rollback: it holds the script that knows what to undo.
        files = (ctx.source.running if before else None) or ctx.source.target

        async def prepare() -> Callable[[str], Script]:
            directory = files.directory
            opened, variables = await self._open_secrets(ctx, config, commands)
            return lambda token: Script(
                text=shell_text(opened),
                directory=directory,
                environment=script_environment(
                    os.environ, ctx.deployment, variables, rollback=rollback, script_id=token
                ),
                token=token,
                kill_grace_seconds=self.config.kill_grace.total_seconds(),
            )

        _judge(ctx, await self._script(ctx, config, commands, prefix).run(prepare))

    async def _open_secrets(
        self, ctx: StageContext, config: ScriptConfig, commands: Sequence[str]
    ) -> tuple[list[str], dict[str, str]]:
        """Returns commands and variables with their secrets filled in; the log shows only names."""
        opened = [(await ctx.secrets.expand_command(each)).text for each in commands]
        variables = {
            name: (await ctx.secrets.expand_variable(value)).text
            for name, value in config.env.items()
        }
        return opened, variables

    def _continue_interrupted(self, ctx: StageContext, config: ScriptConfig) -> None:
        """Raises StageFailedError unless the author allows a second run."""
        if config.on_interrupted == "fail":
            raise StageFailedError(
                "the script was interrupted: it had been started, and nobody knows how far it "
                "came; it is not run again",
                hint="look at what it has done, then deploy again; "
                "`onInterrupted: rerun` is for scripts that may run twice",
            )
        ctx.log.info("The script was interrupted: it is run again, as its author allows")


def _judge(ctx: StageContext, ended: EndRecord) -> None:
    """Logs the success of a script that ended by itself; raises StageFailedError if it failed."""
    if ended.code < 0:
        raise StageFailedError(f"the script was ended by {signal.Signals(-ended.code).name}")
    if ended.code > 0:
        raise StageFailedError(f"the script failed with exit code {ended.code}")
    ctx.log.success("The script has succeeded")


def main() -> None:
    """Runs the executable `pipecd-plugin-scriptrun`."""
    with suppress(OSError):  # an unreadable folder is reported when a script needs it
        sweep(locate_scripts(), older_than=KEEP_RECORDS_SECONDS)
    serve(ScriptRun())


if __name__ == "__main__":
    main()
