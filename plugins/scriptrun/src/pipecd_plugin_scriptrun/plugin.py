# SPDX-License-Identifier: Apache-2.0
"""SCRIPT_RUN: run any commands in the pipeline, and others when it is rolled back.

And CUSTOM_SYNC of older pipelines, whose rollback is the script that ran before.
"""

import asyncio
import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipecd_plugin_scriptrun.config import ScriptConfig, ScriptRunConfig
from pipecd_plugin_scriptrun.customsync import (
    CUSTOM_SYNC,
    CUSTOM_SYNC_ROLLBACK,
    CustomSyncConfig,
    script_before,
)
from pipecd_plugin_scriptrun.ending import end_script
from pipecd_plugin_scriptrun.environment import script_environment
from pipecd_plugin_scriptrun.leftovers import end_leftovers
from pipecd_plugin_scriptrun.prefork import SHIMS
from pipecd_plugin_scriptrun.records import (
    EndRecord,
    ScriptAttempts,
    ScriptRecord,
    find_scripts_folder,
    sweep,
)
from pipecd_plugin_scriptrun.run import DEATH_NOTICE_SECONDS, Attempt, Mark
from pipecd_plugin_scriptrun.script import format_commands, shell_text
from pipecd_plugin_scriptrun.shim import chaos
from pipecd_plugin_scriptrun.shim_client import Script
from pipecd_sdk import (
    PlannedStage,
    RequestedStage,
    StageContext,
    StageFailedError,
    StagePlugin,
    serve,
    stage,
)

SCRIPT_RUN: Final = "SCRIPT_RUN"
ROLLBACK: Final = "SCRIPT_RUN_ROLLBACK"
KEEP_RECORDS_SECONDS: Final = 7 * 24 * 3600.0
"""Seconds after which records are removed that were not removed at the deployment's end."""
ROLLBACK_PREFIX: Final = "rollback-"
"""Of the records and marks of a script that rolls back."""
MARK: Final = "_"
"""The value of a mark; only its presence counts."""


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
        await self._end_others(ctx, self._attempts(ctx, ROLLBACK_PREFIX))
        if await self._was_started(ctx):
            await self._run(ctx, config, config.rollback_commands, ROLLBACK_PREFIX, rollback=True)

    @stage(CUSTOM_SYNC, finishes_on_stop=True)
    async def sync(self, ctx: StageContext, config: CustomSyncConfig) -> None:
        await self._run(ctx, config.script(), (config.run,), "")

    @stage(CUSTOM_SYNC_ROLLBACK, rollback=True, finishes_on_stop=True)
    async def sync_back(self, ctx: StageContext, config: CustomSyncConfig) -> None:
        await self._end_others(ctx, self._attempts(ctx, ROLLBACK_PREFIX))
        if await self._was_started(ctx):
            script = script_before(ctx.source.running)
            commands = script.commands
            await self._run(ctx, script, commands, ROLLBACK_PREFIX, rollback=True, before=True)

    async def _was_started(self, ctx: StageContext) -> bool:
        if await ctx.deployment_metadata.get(f"started-{ctx.stage.index}") is not None:
            return True
        ctx.log.info("The script had not been started: there is nothing to roll back")
        return False

    def _attempts(self, ctx: StageContext, prefix: str) -> ScriptAttempts:
        return ScriptAttempts(
            find_scripts_folder(os.environ),
            deployment=ctx.deployment.id,
            stage=prefix + ctx.stage.id,
            retry=ctx.stage.retried_count,
        )

    async def _end_others(self, ctx: StageContext, attempts: ScriptAttempts) -> None:
        """Ends the deployment's other scripts: only one runs at a time, also after a crash.

        Above all, no script runs beside its own rollback.
        """
        count = 0
        for record in attempts.others():
            count += await self._end_script(ctx, record)
        if count:
            ctx.log.info("Scripts of other stages that had to be ended first: %d", count)

    async def _end_script(self, ctx: StageContext, record: ScriptRecord) -> bool:
        try:
            return await end_script(ctx, record, self.config.kill_grace.total_seconds())
        except OSError as error:
            raise StageFailedError(f"a script's record cannot be kept: {error}") from error

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
        chaos.hit("plugin.begin")
        attempts = self._attempts(ctx, prefix)
        await self._end_others(ctx, attempts)
        number = attempts.last()
        try:
            if number is not None and attempts[number].is_forbidden():
                await self._end_forbidden(ctx, commands, attempts, number)
                return
            await self._run_attempts(
                ctx, config, commands, attempts, prefix, rollback=rollback, before=before
            )
        except BaseException as error:
            # An earlier process may have started it: when the stage ends here, so must the script.
            if isinstance(error, asyncio.CancelledError) and ctx.is_handed_over():
                raise
            number = attempts.last()
            if number is not None and attempts[number].read_ended() is None:
                await asyncio.sleep(DEATH_NOTICE_SECONDS)
                await self._end_script(ctx, attempts[number])
            raise

    async def _run_attempts(
        self,
        ctx: StageContext,
        config: ScriptConfig,
        commands: Sequence[str],
        attempts: ScriptAttempts,
        prefix: str,
        *,
        rollback: bool,
        before: bool,
    ) -> None:
        # The target commit also for a rollback: it holds the script that knows what to undo.
        files = ctx.source.running if before else ctx.source.target
        directory = (files or ctx.source.target).directory
        # Before it counts as started: one that cannot be given its secrets is not run at all.
        opened, variables = await self._open_secrets(ctx, config, commands)
        number, token, mark = await self._begin(ctx, config, attempts, prefix)
        script = Script(
            text=shell_text(opened),
            directory=directory,
            environment=script_environment(
                os.environ, ctx.deployment, variables, rollback=rollback, script_id=token
            ),
            token=token,
            kill_grace=self.config.kill_grace.total_seconds(),
        )
        heading = ["Running:", *format_commands(commands)]
        while True:
            floor = attempts[number - 1].index_after() if number else 0
            run = Attempt(ctx, attempts[number], script, heading=heading, floor=floor, mark=mark)
            ended = await run.run_to_end()
            if ended is not None and not ended.asked:
                break
            self._continue_interrupted(ctx, config)
            number, mark = number + 1, None
            attempts[number].begin(token)
        _judge(ctx, ended)

    async def _end_forbidden(
        self, ctx: StageContext, commands: Sequence[str], attempts: ScriptAttempts, number: int
    ) -> None:
        """Ends a script whose stage was stopped while no process followed it; writes its whole log.

        Neither its files nor its secrets are needed for that.
        """
        script = Script(
            text="",
            directory=Path("/"),
            environment={},
            token=attempts[number].token() or "",
            kill_grace=self.config.kill_grace.total_seconds(),
        )
        heading = ["Running:", *format_commands(commands)]
        ended = await Attempt(ctx, attempts[number], script, heading=heading, floor=0).run_to_end()
        if ended is None or ended.asked:
            raise StageFailedError(
                "the script was ended: its stage had been stopped while nobody followed it"
            )
        _judge(ctx, ended)

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

    async def _begin(
        self, ctx: StageContext, config: ScriptConfig, attempts: ScriptAttempts, prefix: str
    ) -> tuple[int, str, Mark | None]:
        """Returns the number of the attempt to run or to follow, the script's token, and its mark.

        First the intent is recorded on this machine, then the start is marked in the metadata at
        the control plane: for the rollback, and to detect the loss of this machine's records. The
        mark of a script that is new here is left to the caller, who makes it before the start.
        """
        started = f"{prefix}started-{ctx.stage.index}"
        # A retry is a start of its own; that the script was started at all is what its rollback
        # looks at.
        again = f".{ctx.stage.retried_count}" if ctx.stage.retried_count else ""
        mark, token_key = f"{started}{again}", f"{prefix}script-{ctx.stage.index}{again}"
        is_marked = await ctx.deployment_metadata.get(mark) is not None
        number = attempts.last()
        if number is None and is_marked:
            # In the metadata, but without a record here: the data folder is another one.
            token = await ctx.deployment_metadata.get(token_key) or new_token()
            count = await end_leftovers(ctx, token, self.config.kill_grace.total_seconds())
            ctx.log.info("Processes of the interrupted script that had to be ended: %d", count)
            self._continue_interrupted(ctx, config)
            return 0, attempts[0].begin(token), None
        if number is None:
            token = _begin_record(attempts[0])
            chaos.hit("plugin.intent")
            marks = {started: MARK, mark: MARK, token_key: token}
            return 0, token, lambda: ctx.deployment_metadata.put_many(marks)
        token = attempts[number].token() or new_token()
        if not is_marked:
            await ctx.deployment_metadata.put_many({started: MARK, mark: MARK, token_key: token})
        return number, token, None

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


def new_token() -> str:
    """Returns a new random token; no other script has the same."""
    return os.urandom(16).hex()


def _begin_record(record: ScriptRecord) -> str:
    try:
        return record.begin(new_token())
    except OSError as error:
        raise StageFailedError(f"the script's record cannot be kept: {error}") from error


def main() -> None:
    """Runs the executable `pipecd-plugin-scriptrun`."""
    with suppress(OSError):  # an unreadable folder is reported when a script needs it
        sweep(find_scripts_folder(os.environ), older_than=KEEP_RECORDS_SECONDS)
    serve(ScriptRun())


if __name__ == "__main__":
    main()
