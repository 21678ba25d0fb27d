# SPDX-License-Identifier: Apache-2.0
"""A platform that does nothing, on command: it sleeps, fails, crashes and writes down its calls.

For tests of everything around a platform plugin. Its rollback stage gets the options of the stage
whose place it has, as every rollback stage does; what the rollback itself should do is in their
`rollback`.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from pipecd_sdk import (
    BadValueError,
    DeploymentPlugin,
    Duration,
    PlanContext,
    StageConfig,
    StageContext,
    StageFailedError,
    Version,
    field,
    serve,
    stage,
)

EXITS: Final = "exits"
"""How often the process has exited in this stage."""


class Failure(str):
    """The reason to fail with: `true`, or a sentence; empty means not to fail."""

    __slots__ = ()

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, bool):
            return cls("failed as told" if value else "")
        if isinstance(value, str):
            return cls(value)
        raise BadValueError(f"not a reason to fail: {value!r}", hint="true, or a sentence")


class Behaviour(StageConfig):
    """What a stage does."""

    sleep: Duration = Duration()
    """How long it takes."""
    fail: Failure = Failure()
    """Why it fails, after the sleep."""
    log: tuple[str, ...] = ()
    """Lines for the stage log, at the beginning."""
    exit: int | None = None
    """End the whole process with this code, after the sleep."""
    exit_times: int = 1
    """How often to do that; after it the stage goes on."""
    ignore_cancel: Duration = Duration()
    """How long it goes on after it was cancelled."""


class DummyConfig(Behaviour):
    """The options of all stages."""

    record: str = ""
    """A file to add a line `<stage> <commit>` to, at the beginning."""
    rollback: Behaviour = field(default_factory=Behaviour)
    """What the rollback stage does, when it has the place of this one."""


class Dummy(DeploymentPlugin):
    """Needs nothing, changes nothing."""

    needs_targets: ClassVar[bool] = False

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        return [Version(name="dummy", version=ctx.deployment.commit.hash[:7])]

    @stage("DUMMY_SYNC", quick_sync=True, desc="Do nothing at once", needs_files=False)
    async def sync(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_CANARY_ROLLOUT", needs_files=False)
    async def roll_out_canary(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_PRIMARY_ROLLOUT", needs_files=False)
    async def roll_out_primary(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_CANARY_CLEAN", needs_files=False)
    async def clean_canary(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_ROLLBACK", rollback=True, desc="Undo nothing", needs_files=False)
    async def roll_back(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config.rollback)


async def _behave(ctx: StageContext, record: str, behaviour: Behaviour) -> None:
    if record:
        _add_line(record, f"{ctx.stage.name} {ctx.deployment.commit.hash}\n")
    for line in behaviour.log:
        ctx.log.info("%s", line)
    try:
        await ctx.clock.sleep(behaviour.sleep)
    except asyncio.CancelledError:
        ctx.log.info("Cancelled; going on for %s", behaviour.ignore_cancel)
        await ctx.clock.sleep(behaviour.ignore_cancel)
        raise
    if behaviour.exit is not None:
        exits = int(await ctx.metadata.get(EXITS) or 0)
        if exits < behaviour.exit_times:
            await ctx.metadata.put(EXITS, str(exits + 1))
            os._exit(behaviour.exit)
    if behaviour.fail:
        raise StageFailedError(behaviour.fail)
    ctx.log.success("Nothing was done, as told")


def _add_line(file: str, line: str) -> None:
    """Add a line in one write: several stages, even of several processes, may share the file."""
    number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(number, line.encode())
    finally:
        os.close(number)


def main() -> None:
    """The executable `pipecd-plugin-dummy`."""
    serve(Dummy(), version="0.1.0")


if __name__ == "__main__":
    main()
