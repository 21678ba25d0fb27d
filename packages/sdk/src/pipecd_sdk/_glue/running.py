# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of this process: starts, cancels, waits for and drains them.

A handler runs in a task of its own, so that it is cancelled exactly once, whatever happens to the
call that started it, and its cleanup is waited for.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from pipecd_sdk.results import StageResult, StageStatus
from pipecd_wire.refusals import make_stopping_error

log = logging.getLogger(__name__)

SHORTEST_RESERVE_SECONDS: Final = 5.0
"""Seconds of the grace period that are kept for ending what has not ended by itself."""

LAST_MOMENT_SECONDS: Final = 2.0
"""Seconds of the grace period that are kept for the end of the process, after the last reports."""

Key = tuple[str, str]
"""Deployment id and stage id."""

Work = Callable[["StageRun"], Awaitable[StageResult | None]]
"""Runs a stage; None when it was cancelled."""


@dataclass(slots=True, kw_only=True, eq=False)
class StageRun:
    """One call of a handler."""

    key: Key
    finishes_on_stop: bool
    is_cancelled: bool = False
    is_handed_over: bool = False
    """Cancelled because the process stops: the next one continues the stage."""
    task: asyncio.Task[StageResult | None] | None = field(default=None, repr=False)
    hurry: Callable[[float], None] = field(default=lambda _: None, repr=False)
    """Called when the process stops, with the time by which the last reports must be sent."""

    def cancel(self, *, hand_over: bool) -> None:
        """Cancels the handler, once: a second cancellation would interrupt its cleanup."""
        if not self.is_cancelled and self.task is not None:
            self.is_cancelled, self.is_handed_over = True, hand_over
            self.task.cancel()


class StageRuns:
    """Owner of all handlers. Its tasks belong to the given group, which waits for them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._runs: dict[Key, StageRun] = {}
        self.is_stopping = False
        self.is_ending = False
        self.reports_until: float | None = None
        """When the process stops: the time by which the last reports must be sent."""
        self._is_insisted = False

    async def run(self, key: Key, work: Work, *, finishes_on_stop: bool) -> StageResult:
        """Runs a stage to its end; cancelling this call cancels the handler and does not wait.

        When the same stage still runs (its first call was lost), waits for its end first.
        """
        await self.wait(key)
        if self.is_stopping:
            raise make_stopping_error()
        run = StageRun(key=key, finishes_on_stop=finishes_on_stop)
        run.task = self._tasks.create_task(_guard(run, work), name=f"stage {key[1]}")
        self._runs[key] = run
        # Not in the task itself: one that is cancelled before it began does nothing at all.
        run.task.add_done_callback(lambda _: self._runs.pop(key))
        try:
            await asyncio.wait([run.task])
        except asyncio.CancelledError:
            # While we stop, piped stops as well: what it cancels now, the next one continues.
            run.cancel(hand_over=self._hands_over())
            raise
        if run.task.cancelled() or (result := run.task.result()) is None:
            raise make_stopping_error()
        return result

    async def wait(self, key: Key) -> None:
        """Waits until no handler of a stage runs."""
        while (run := self._runs.get(key)) is not None and run.task is not None:
            await asyncio.wait([run.task])

    async def stop(self, *, grace_seconds: float, insisted: asyncio.Event) -> bool:
        """Drains: accepts no new stage, ends the running ones; returns whether all ended in time.

        Handlers with `finishes_on_stop` may run until the end of the grace period is near, or until
        `insisted` is set; all others are cancelled at once. A cancelled stage is handed over to the
        next process, but not one that is cancelled after `insisted`: that one ends for good.
        """
        self.is_stopping = True
        over = time.monotonic() + grace_seconds
        self.reports_until = over - min(LAST_MOMENT_SECONDS, grace_seconds / 4)
        for run in self._runs.values():
            run.hurry(self.reports_until)
            if not run.finishes_on_stop:
                run.cancel(hand_over=True)
        patience = grace_seconds - min(SHORTEST_RESERVE_SECONDS, grace_seconds / 2)
        async with asyncio.TaskGroup() as waits:
            ended = waits.create_task(self._all_ended())
            insisting = waits.create_task(insisted.wait())
            await asyncio.wait(
                [ended, insisting], timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            ended.cancel()
            insisting.cancel()
        self.is_ending = True
        self._is_insisted = insisted.is_set()
        for run in self._runs.values():
            run.cancel(hand_over=not self._is_insisted)
        try:
            async with asyncio.timeout(max(over - time.monotonic(), 0)):
                await self._all_ended()
        except TimeoutError:
            return False
        return True

    def _hands_over(self) -> bool:
        """Returns whether the next process continues a stage that is cancelled now."""
        return self.is_stopping and not self._is_insisted

    async def _all_ended(self) -> None:
        while tasks := [run.task for run in self._runs.values() if run.task is not None]:
            await asyncio.wait(tasks)


async def _guard(run: StageRun, work: Work) -> StageResult | None:
    """Runs a stage; an exception of the SDK itself fails this stage and not the others."""
    try:
        return await work(run)
    except Exception:
        fields = {"deployment_id": run.key[0], "stage_id": run.key[1]}
        log.exception("stage.bug", extra={"fields": fields})
        reason = "the plugin could not run the stage; piped's log has the details"
        return StageResult(status=StageStatus.FAILURE, reason=reason)
