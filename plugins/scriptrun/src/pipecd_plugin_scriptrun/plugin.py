# SPDX-License-Identifier: Apache-2.0
"""SCRIPT_RUN: run any commands in the pipeline, and others when it is rolled back."""

import os
import signal
from collections.abc import Iterable, Sequence
from typing import Final

from pipecd_plugin_scriptrun.config import ScriptConfig, ScriptRunConfig
from pipecd_plugin_scriptrun.environment import script_environment
from pipecd_plugin_scriptrun.run import ProcessTree, Script, new_script_id, run_script
from pipecd_plugin_scriptrun.script import shell_text, shown
from pipecd_sdk import (
    PlannedStage,
    StageContext,
    StageFailedError,
    StagePlugin,
    WantedStage,
    serve,
    stage,
)

ROLLBACK: Final = "SCRIPT_RUN_ROLLBACK"
MARK: Final = "_"
"""The value of a mark; that it is there is what counts."""


class ScriptRun(StagePlugin):
    """Runs scripts, each at most once."""

    config: ScriptRunConfig

    def plan(self, wanted: Sequence[WantedStage], *, rollback: bool) -> Iterable[PlannedStage]:
        yield from (each.planned() for each in wanted)
        if rollback:
            for each in wanted:
                if each.config.rollback_commands:
                    yield each.rolled_back_by(ROLLBACK, desc="Run the script's onRollback")

    @stage("SCRIPT_RUN", finishes_on_stop=True)
    async def run(self, ctx: StageContext, config: ScriptConfig) -> None:
        script_id = await self._start_once(ctx)
        await self._run(ctx, config, config.commands, script_id)

    @stage(ROLLBACK, rollback=True, finishes_on_stop=True)
    async def roll_back(self, ctx: StageContext, config: ScriptConfig) -> None:
        if await ctx.deployment_metadata.get(f"started-{ctx.stage.index}") is None:
            ctx.log.info("The script had not been started: there is nothing to roll back")
            return
        script_id = await self._start_once(ctx, "rollback-")
        await self._run(ctx, config, config.rollback_commands, script_id, rollback=True)

    async def _start_once(self, ctx: StageContext, prefix: str = "") -> str:
        """Leave a mark that this script was started; the value is its token.

        When the mark is there already, the plugin ended while the script ran. Nobody knows how far
        it came: what is left of it is ended, and the stage fails.
        """
        mark, token = f"{prefix}started-{ctx.stage.index}", f"{prefix}script-{ctx.stage.index}"
        if await ctx.deployment_metadata.get(mark) is None:
            script_id = new_script_id()
            await ctx.deployment_metadata.put_many({mark: MARK, token: script_id})
            return script_id
        if left := await ctx.deployment_metadata.get(token):
            count = await ProcessTree(ctx, left, self.config.kill_grace).end()
            ctx.log.info("Processes of the interrupted script that had to be ended: %d", count)
        raise StageFailedError(
            "the script was interrupted: it had been started, and nobody knows how far it came; "
            "it is not run again",
            hint="look at what it has done, then deploy again",
        )

    async def _run(
        self,
        ctx: StageContext,
        config: ScriptConfig,
        commands: Sequence[str],
        script_id: str,
        *,
        rollback: bool = False,
    ) -> None:
        # The target commit also for a rollback: it holds the script that knows what to undo.
        script = Script(
            text=shell_text(commands),
            directory=ctx.source.target.directory,
            environment=script_environment(
                os.environ, ctx.deployment, config.env, rollback=rollback, script_id=script_id
            ),
            script_id=script_id,
            kill_grace=self.config.kill_grace,
        )
        ctx.log.info("Running:")
        for line in shown(commands):
            ctx.log.info("%s", line)
        code = await run_script(ctx, script)
        if code < 0:
            raise StageFailedError(f"the script was ended by {signal.Signals(-code).name}")
        if code > 0:
            raise StageFailedError(f"the script failed with exit code {code}")
        ctx.log.success("The script has succeeded")


def main() -> None:
    """The executable `pipecd-plugin-scriptrun`."""
    serve(ScriptRun(), version="0.1.0")


if __name__ == "__main__":
    main()
