# SPDX-License-Identifier: Apache-2.0
"""A stage on several deploy targets at once: one result for each, and one reason for all."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from pipecd_sdk.context import DeployTarget, StageContext
from pipecd_sdk.results import PipedError, StageFailedError, StageStatus
from pipecd_sdk.stage_log import StageLog

log = logging.getLogger(__name__)

TARGETS_KEY: Final = "pipecd/stage-targets"
"""Stage metadata: JSON of each target's name to its status and reason."""
AT_ONCE: Final = 8

Work = Callable[[DeployTarget, StageLog], Awaitable[None]]


class TargetResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage ended on one deploy target.

    Example:
        TargetResult(target="tokyo", status=StageStatus.SUCCESS)
    """

    target: str
    status: StageStatus
    reason: str = ""


async def run_on_targets(
    ctx: StageContext,
    work: Work,
    *,
    targets: Sequence[DeployTarget] | None = None,
    concurrency: int = AT_ONCE,
) -> list[TargetResult]:
    """Calls `work` for every deploy target, several at a time, and returns all results.

    `work` gets the target and a log that names it in front of every line. All targets are tried;
    the results are stored in the stage's metadata. Raises StageFailedError when some failed, which
    names each of them with its reason.

    Example:
        async def sync(target: DeployTarget, log: StageLog) -> None:
            log.info("copying")

        await run_on_targets(ctx, sync)
    """
    chosen = ctx.targets if targets is None else targets
    room = asyncio.Semaphore(concurrency)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_one(ctx, target, work, room)) for target in chosen]
    results = [each.result() for each in running]
    await ctx.metadata.put(
        TARGETS_KEY,
        json.dumps({r.target: {"status": r.status.name, "reason": r.reason} for r in results}),
    )
    if failed := [each for each in results if each.status is StageStatus.FAILURE]:
        if len(results) == 1:
            raise StageFailedError(failed[0].reason)
        reasons = "; ".join(f"{each.target}: {each.reason}" for each in failed)
        raise StageFailedError(f"{len(failed)} of {len(results)} deploy targets failed: {reasons}")
    return results


async def _one(
    ctx: StageContext, target: DeployTarget, work: Work, room: asyncio.Semaphore
) -> TargetResult:
    # One target in the log needs no name in front of each line.
    named = ctx.log if len(ctx.targets) == 1 else ctx.log.copy_with_prefix(f"[{target.name}] ")
    async with room:
        try:
            await work(target, named)
        except StageFailedError as error:
            reason = error.reason()
        except PipedError as error:
            reason = f"piped could not be asked: {error}"
        except Exception as error:
            log.exception("target.bug", extra={"fields": {"target": target.name}})
            reason = f"{type(error).__name__} in the plugin; piped's log has the details"
        else:
            return TargetResult(target=target.name, status=StageStatus.SUCCESS)
    named.error("%s", reason)
    return TargetResult(target=target.name, status=StageStatus.FAILURE, reason=reason)
