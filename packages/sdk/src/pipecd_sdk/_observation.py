# SPDX-License-Identifier: Apache-2.0
"""Live state and previews of all deploy targets, merged into one response.

Pure: piped's requests come through `_glue.observe`, a plugin's own tests through `testing`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pipecd_sdk.config import OptionFaultsError
from pipecd_sdk.context import DeployTarget
from pipecd_sdk.livestate import (
    Drift,
    Health,
    LiveContext,
    LiveSnapshot,
    LiveState,
    Resource,
    SyncState,
    SyncStatus,
)
from pipecd_sdk.plugin import StagePlugin
from pipecd_sdk.preview import PlanPreview, Preview, PreviewContext
from pipecd_sdk.results import InvalidFileError, PipedError, StageFailedError

AT_ONCE: Final = 8
# The worst of several targets is the application's, in piped's own order between plugins.
_WORST: Final = (SyncStatus.INVALID_CONFIG, SyncStatus.OUT_OF_SYNC, SyncStatus.UNKNOWN)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What runs on all targets, and whether it matches."""

    resources: Sequence[tuple[DeployTarget, Resource]]
    sync: SyncState

    @property
    def healths(self) -> set[Health]:
        return {resource.health for _, resource in self.resources}


async def observe(plugin: StagePlugin, ctx: LiveContext) -> Observation:
    """Reads every target. One that cannot be read is reported in the state, and hides no other."""
    found = await _each(ctx.targets, lambda target: _look(plugin, ctx, target))
    return Observation(
        resources=[
            (target, resource)
            for target, (live, _) in zip(ctx.targets, found, strict=True)
            for resource in live.resources
        ],
        sync=merge(
            [(target.name, sync) for target, (_, sync) in zip(ctx.targets, found, strict=True)]
        ),
    )


async def _look(
    plugin: StagePlugin, ctx: LiveContext, target: DeployTarget
) -> tuple[LiveSnapshot, SyncState]:
    live = LiveSnapshot()
    try:
        if isinstance(plugin, LiveState):
            live = await plugin.live_state(ctx, target)
        if isinstance(plugin, Drift):
            return live, await plugin.drift(ctx, target, live)
    except OptionFaultsError as error:
        return live, _make_state(SyncStatus.INVALID_CONFIG, str(error))
    except InvalidFileError as error:
        return live, _make_state(SyncStatus.INVALID_CONFIG, error.reason())
    except StageFailedError as error:
        return live, _make_state(SyncStatus.UNKNOWN, error.reason())
    except PipedError as error:
        return live, _make_state(SyncStatus.UNKNOWN, f"piped could not be asked: {error}")
    return live, SyncState(
        status=SyncStatus.UNKNOWN, short_reason="the plugin does not compare with git"
    )


def _make_state(status: SyncStatus, reason: str) -> SyncState:
    return SyncState(status=status, short_reason=reason.partition("\n")[0], reason=reason)


def merge(states: Sequence[tuple[str, SyncState]]) -> SyncState:
    """Returns one state for all targets: the worst, with the reasons of all not in sync."""
    if len(states) == 1:
        return states[0][1]
    if not states:
        return SyncState(status=SyncStatus.UNKNOWN, short_reason="there is no deploy target")
    told = [(name, state) for name, state in states if state.status is not SyncStatus.SYNCED]
    if not told:
        return SyncState(status=SyncStatus.SYNCED)
    return SyncState(
        status=next(s for s in _WORST if any(state.status is s for _, state in told)),
        short_reason="; ".join(f"{name}: {state.short_reason}" for name, state in told),
        reason="\n".join(f"{name}: {state.reason or state.short_reason}" for name, state in told),
    )


async def preview(plugin: PlanPreview, ctx: PreviewContext) -> list[tuple[DeployTarget, Preview]]:
    """Returns what would change on every target. Raises StageFailedError with all failures."""
    failures: list[str] = []

    async def look(target: DeployTarget) -> Preview | None:
        try:
            return await plugin.plan_preview(ctx, target)
        except StageFailedError as error:
            failures.append(f"{target.name}: {error.reason()}")
            return None

    found = await _each(ctx.targets, look)
    if failures:
        raise StageFailedError("; ".join(failures))
    return [(t, p) for t, p in zip(ctx.targets, found, strict=True) if p is not None]


async def _each(
    targets: Sequence[DeployTarget], look: Callable[[DeployTarget], Awaitable[T]]
) -> list[T]:
    room = asyncio.Semaphore(AT_ONCE)
    failure: list[Exception] = []

    async def one(target: DeployTarget) -> T | None:
        async with room:
            try:
                return await look(target)
            except Exception as error:  # noqa: BLE001 - raised below: the caller knows no groups
                failure.append(error)
                return None

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(target)) for target in targets]
    if failure:
        raise failure[0]
    return [each.result() for each in running]  # type: ignore[misc]  # None only with a failure
