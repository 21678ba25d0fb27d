# SPDX-License-Identifier: Apache-2.0
"""The script of one stage: begun at most once, followed by whichever process comes after."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipecd_runtime.shim import chaos
from pipecd_sdk import StageContext, StageFailedError
from pipecd_sdk.scripts.attempt import Attempt, Mark, Translate, as_written
from pipecd_sdk.scripts.death_notice import wait_death_notice
from pipecd_sdk.scripts.ending import end_script
from pipecd_sdk.scripts.leftovers import end_leftovers
from pipecd_sdk.scripts.records import EndRecord, ScriptAttempts, ScriptRecord
from pipecd_sdk.scripts.shim_client import Script

ROLLBACK_PREFIX: Final = "rollback-"
"""Of the records and marks of a script that rolls back."""
MARK: Final = "_"
"""The value of a mark; only its presence counts."""

Prepare = Callable[[], Awaitable[Callable[[str], Script]]]
"""Makes a script ready before it counts as started; returns what makes it of its token."""


def new_token() -> str:
    """Returns a new random token; no other script has the same."""
    return os.urandom(16).hex()


async def was_started(ctx: StageContext) -> bool:
    """Returns whether the script of a rollback stage's own stage was ever started."""
    return await ctx.deployment_metadata.get(f"started-{ctx.stage.index}") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageScript:
    """The script of a stage."""

    ctx: StageContext
    scripts: Path
    """The folder of all records."""
    kill_grace_seconds: float
    """Seconds that it may take to end by itself."""
    heading: Sequence[str]
    """What the log says before its output."""
    continue_interrupted: Callable[[], None]
    """Called when nobody knows how far it came: raises StageFailedError unless it may run again."""
    prefix: str = ""
    is_interrupted: bool = False
    """Whether SIGINT ends it, and the grace period is never shortened."""
    what: str = "the script"
    """How the log calls it."""
    translate: Translate = field(default=as_written)
    """Makes a line of the log of a line of the output."""

    @property
    def attempts(self) -> ScriptAttempts:
        """Returns the records of the attempts to run it."""
        return ScriptAttempts(
            self.scripts,
            deployment=self.ctx.deployment.id,
            stage=self.prefix + self.ctx.stage.id,
            retry=self.ctx.stage.retried_count,
        )

    def has_started(self) -> bool:
        """Returns whether an earlier process has started it on this machine."""
        number = self.attempts.last()
        return number is not None and self.attempts[number].is_started()

    async def end_others(self) -> None:
        """Ends the deployment's other scripts: only one runs at a time, also after a crash.

        Above all, no script runs beside its own rollback.
        """
        count = 0
        for record in self.attempts.others():
            count += await self._end_script(record)
        if count:
            self.ctx.log.info("Scripts of other stages that had to be ended first: %d", count)

    async def _end_script(self, record: ScriptRecord) -> bool:
        try:
            return await end_script(
                self.ctx, record, self.kill_grace_seconds, is_interrupted=self.is_interrupted
            )
        except OSError as error:
            raise StageFailedError(f"a script's record cannot be kept: {error}") from error

    async def run(self, prepare: Prepare) -> EndRecord:
        """Runs or follows it to its end; returns how it ended by itself.

        Raises StageFailedError when it was ended, could not be started, or was interrupted.
        """
        chaos.hit("plugin.begin")
        attempts = self.attempts
        await self.end_others()
        number = attempts.last()
        try:
            if number is not None and attempts[number].is_forbidden():
                return await self._end_forbidden(attempts[number])
            return await self._run_attempts(attempts, prepare)
        except BaseException as error:
            # An earlier process may have started it: when the stage ends here, so must the script.
            if isinstance(error, asyncio.CancelledError) and self.ctx.is_handed_over():
                raise
            number = attempts.last()
            if number is not None and attempts[number].read_ended() is None:
                await wait_death_notice()
                await self._end_script(attempts[number])
            raise

    async def _run_attempts(self, attempts: ScriptAttempts, prepare: Prepare) -> EndRecord:
        # Before it counts as started: one that cannot be made ready is not run at all.
        make = await prepare()
        number, token, mark = await self._begin(attempts)
        script = make(token)
        while True:
            floor = attempts[number - 1].index_after() if number else 0
            ended = await self._attempt(attempts[number], script, floor=floor, mark=mark)
            if ended is not None and not ended.asked:
                return ended
            self.continue_interrupted()
            number, mark = number + 1, None
            attempts[number].begin(token)

    async def _attempt(
        self, record: ScriptRecord, script: Script, *, floor: int = 0, mark: Mark | None = None
    ) -> EndRecord | None:
        attempt = Attempt(
            self.ctx,
            record,
            script,
            heading=self.heading,
            floor=floor,
            mark=mark,
            what=self.what,
            translate=self.translate,
        )
        return await attempt.run_to_end()

    async def _end_forbidden(self, record: ScriptRecord) -> EndRecord:
        """Ends a script whose stage was stopped while no process followed it; writes its whole log.

        Neither its files nor its secrets are needed for that.
        """
        script = Script(
            text="",
            directory=Path("/"),
            environment={},
            token=record.token() or "",
            kill_grace_seconds=self.kill_grace_seconds,
            is_interrupted=self.is_interrupted,
        )
        ended = await self._attempt(record, script)
        if ended is None or ended.asked:
            raise StageFailedError(
                f"{self.what} was ended: its stage had been stopped while nobody followed it"
            )
        return ended

    async def _begin(self, attempts: ScriptAttempts) -> tuple[int, str, Mark | None]:
        """Returns the number of the attempt to run or to follow, the script's token, and its mark.

        First the intent is recorded on this machine, then the start is marked in the metadata at
        the control plane: for the rollback, and to detect the loss of this machine's records. The
        mark of a script that is new here is left to the caller, who makes it before the start.
        """
        ctx = self.ctx
        started = f"{self.prefix}started-{ctx.stage.index}"
        # A retry is a start of its own; that the script was started at all is what its rollback
        # looks at.
        again = f".{ctx.stage.retried_count}" if ctx.stage.retried_count else ""
        mark, token_key = f"{started}{again}", f"{self.prefix}script-{ctx.stage.index}{again}"
        is_marked = await ctx.deployment_metadata.get(mark) is not None
        number = attempts.last()
        if number is None and is_marked:
            # In the metadata, but without a record here: the data folder is another one.
            token = await ctx.deployment_metadata.get(token_key) or new_token()
            count = await end_leftovers(
                ctx, token, self.kill_grace_seconds, is_interrupted=self.is_interrupted
            )
            ctx.log.info("Processes of the interrupted script that had to be ended: %d", count)
            self.continue_interrupted()
            return 0, attempts[0].begin(token), None
        if number is None:
            token = self._begin_record(attempts[0])
            chaos.hit("plugin.intent")
            marks = {started: MARK, mark: MARK, token_key: token}
            return 0, token, lambda: ctx.deployment_metadata.put_many(marks)
        token = attempts[number].token() or new_token()
        if not is_marked:
            await ctx.deployment_metadata.put_many({started: MARK, mark: MARK, token_key: token})
        return number, token, None

    def _begin_record(self, record: ScriptRecord) -> str:
        try:
            return record.begin(new_token())
        except OSError as error:
            raise StageFailedError(f"{self.what}'s record cannot be kept: {error}") from error
