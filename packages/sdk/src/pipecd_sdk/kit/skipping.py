# SPDX-License-Identifier: Apache-2.0
"""A stage that people may skip while it runs.

Example:
    async def wait(self, ctx: StageContext, config: WaitConfig) -> Outcome | None:
        return Skip if await run_unless_skipped(ctx, self.look(ctx)) else None
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from pipecd_sdk.context import CommandKind, StageContext
from pipecd_sdk.results import PipedError

__all__ = ["run_unless_skipped"]


async def run_unless_skipped(ctx: StageContext, work: Coroutine[Any, Any, None]) -> str | None:
    """Does the work, or cancels it as soon as somebody skips the stage.

    Returns who skipped it, None when the work came to its end; raises what the work raises. An
    agent that cannot tell of commands is no reason to fail: the work is done all the same.

    Example:
        if who := await run_unless_skipped(ctx, ctx.clock.sleep(config.duration)):
            ctx.log.info("Skipped by %s", who)
    """
    working = asyncio.create_task(work)
    skipping = asyncio.create_task(_wait_skipped(ctx))
    try:
        await asyncio.wait({working, skipping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return skipping.result()
        await working
    finally:
        for task in (working, skipping):
            task.cancel()
        await asyncio.wait({working, skipping})
    return None


async def _wait_skipped(ctx: StageContext) -> str:
    """Waits until somebody skips the stage; returns their name."""
    try:
        async for command in ctx.commands:
            if command.kind is CommandKind.SKIP:
                return command.commander or "somebody"
    except PipedError as error:
        ctx.log.info("Nobody can skip this stage: %s", error)
    await asyncio.Event().wait()
    raise AssertionError
