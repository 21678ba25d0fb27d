# SPDX-License-Identifier: Apache-2.0
"""Runs one stage, forward or rollback, to its end or until something stops it.

A failed stage is a result, not an exception: every error becomes a `StageOutcome` with a reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from pipecd_model.errors import PipecdError, PluginError, shorten_reason
from pipecd_model.stage import is_completed
from pipecd_piped.plan.protocols import PluginCalls
from pipecd_piped.plan.retrying import wait_ready
from pipecd_piped.plugins.errors import PluginLostError
from pipecd_piped.schedule.stop import (
    Cancelled,
    Refused,
    StopReason,
    StopRequestedError,
    StopScope,
    Superseded,
    Terminated,
    TimedOut,
)
from pipecd_runtime.logs import logger
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.deployment_pb2 import PipelineStage, StageStatus
from pipecd_wire.plugin.deploymentapi.api_pb2 import ExecutePluginInput, ExecuteStageResponse

log = logger(__name__)

RESTARTS: Final = 5
"""How often a stage is executed on a plugin that gets lost before the stage fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """How a stage ended. With a status that is not final, the stage was left as it is."""

    status: StageStatus.ValueType
    reason: str = ""

    @property
    def ended(self) -> bool:
        return is_completed(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A timeout: how many seconds are left, and the reason that is reported when they are over."""

    seconds: float
    sentence: str


async def run_stage(
    stage: PipelineStage,
    execute: Callable[[], Awaitable[ExecuteStageResponse]],
    scope: StopScope,
    limits: Iterable[Limit],
) -> StageOutcome:
    """Run the stage inside the scope; a limit that passes stops it. Returns its outcome."""
    loop = asyncio.get_running_loop()
    timers = []
    for limit in limits:
        over = TimedOut(sentence=limit.sentence)
        if limit.seconds <= 0:
            scope.stop(over)
        else:
            timers.append(loop.call_later(limit.seconds, scope.stop, over))
    try:
        async with scope:
            answer = await execute()
    except StopRequestedError as stopped:
        return _outcome_of_stop(stopped.reason)
    except PipecdError as error:
        if scope.reason is not None:
            # It was being stopped; that the plugin then failed is only added to the reason.
            return _outcome_of_stop(scope.reason, error.with_hint())
        return StageOutcome(status=pb.STAGE_FAILURE, reason=error.with_hint())
    except Exception:  # noqa: BLE001 - one of the doors: a bug fails the stage, not piped
        log.bug("stage.bug", stage=stage.name)
        return StageOutcome(
            status=pb.STAGE_FAILURE, reason="internal error of piped; its log has the details"
        )
    finally:
        for timer in timers:
            timer.cancel()
    return _read_answer(stage, answer)


@dataclass(slots=True)
class Asked:
    """Whether a plugin was called to run a stage, and whether it has ended the stage."""

    was_asked: bool = False
    has_ended: bool = False
    """Whether the plugin has ended the stage, by itself or because it was cancelled."""


async def execute_on(
    plugin: PluginCalls, run: ExecutePluginInput, asked: Asked, *, stopping: Callable[[], bool]
) -> ExecuteStageResponse:
    """Call ExecuteStage, and retry on the restarted plugin when its process is lost.

    Raises StopRequestedError when it is lost because piped stops.
    """
    lost: PluginLostError | None = None
    for _ in range(RESTARTS):
        await _ready(plugin, stopping)
        asked.was_asked = True
        try:
            answer = await plugin.execute_stage(run)
        except asyncio.CancelledError:
            asked.has_ended = True
            raise
        except PluginLostError as error:
            if stopping():
                raise StopRequestedError(Terminated()) from error
            log.warning(
                "stage.plugin_lost", plugin=plugin.name, stage=run.stage.name, reason=str(error)
            )
            lost = error
        else:
            asked.has_ended = True
            return answer
    raise PluginError(
        f"the plugin {plugin.name!r} was lost {RESTARTS} times during the stage: {lost}"
    ) from lost


async def _ready(plugin: PluginCalls, stopping: Callable[[], bool]) -> None:
    try:
        await wait_ready(plugin)
    except PluginLostError as error:
        if stopping():
            raise StopRequestedError(Terminated()) from error
        raise


def _read_answer(stage: PipelineStage, answer: ExecuteStageResponse) -> StageOutcome:
    if not is_completed(answer.status):
        return StageOutcome(
            status=pb.STAGE_FAILURE,
            reason=f"the plugin answered {_name(answer.status)}, which is no end of a stage",
        )
    reason = shorten_reason(answer.message)
    if not reason and answer.status == pb.STAGE_FAILURE:
        reason = f"{stage.name} failed, see its log"
    return StageOutcome(status=answer.status, reason=reason)


def _outcome_of_stop(reason: StopReason, also: str = "") -> StageOutcome:
    text = f"{reason}; {also}" if also else str(reason)
    match reason:
        case Cancelled() | Superseded() | Refused():
            return StageOutcome(status=pb.STAGE_CANCELLED, reason=text)
        case TimedOut():
            return StageOutcome(status=pb.STAGE_FAILURE, reason=text)
        case Terminated():  # not a failure of the stage: left for the next piped
            return StageOutcome(status=pb.STAGE_RUNNING, reason=text)
        case other:
            assert_never(other)


def _name(status: StageStatus.ValueType) -> str:
    try:
        return StageStatus.Name(status)
    except ValueError:
        return f"the unknown status {status}"
