# SPDX-License-Identifier: Apache-2.0
"""One view of an application from the answers of its plugins. Pure.

A plugin that fails takes nothing from the others: what they said is shown, and the failure becomes
the reason why nobody can be sure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveStateSnapshot,
    ResourceState,
)
from pipecd_wire.model.application_pb2 import (
    DEPLOYING,
    INVALID_CONFIG,
    OUT_OF_SYNC,
    SYNCED,
    UNKNOWN,
    ApplicationSyncState,
)
from pipecd_wire.plugin.livestateapi.api_pb2 import GetLivestateResponse

_WORST_FIRST: Final = (DEPLOYING, INVALID_CONFIG, OUT_OF_SYNC, UNKNOWN, SYNCED)

NOT_TOLD: Final = ApplicationSyncState(
    status=UNKNOWN, short_reason="the plugin does not say whether it is in sync"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStateView:
    """What is told about an application."""

    resources: tuple[ResourceState, ...]
    health: ApplicationLiveStateSnapshot.Status.ValueType
    sync: ApplicationSyncState
    """Without its time."""

    def same_as(self, other: "LiveStateView | None") -> bool:
        """Does it say the same, whenever it was looked at?"""
        return (
            other is not None
            and (self.health, self.sync) == (other.health, other.sync)
            and len(self.resources) == len(other.resources)
            and all(
                _timeless(mine) == _timeless(theirs)
                for mine, theirs in zip(self.resources, other.resources, strict=True)
            )
        )


def merge(
    answers: Mapping[str, GetLivestateResponse], failures: Mapping[str, str]
) -> LiveStateView:
    """The view from the answers, and the failures, of plugins by name."""
    resources: list[ResourceState] = []
    states: list[ApplicationSyncState] = []
    for name in sorted(answers):
        answer = answers[name]
        for resource in answer.application_live_state.resources:
            resource.plugin_name = name
            resources.append(resource)
        states.append(answer.sync_state if answer.HasField("sync_state") else NOT_TOLD)
    states += [
        ApplicationSyncState(
            status=UNKNOWN,
            short_reason=f"the plugin {name!r} cannot tell",
            reason=f"{name}: {failures[name]}",
        )
        for name in sorted(failures)
    ]
    return LiveStateView(
        resources=tuple(resources), health=health(resources), sync=merge_sync(states)
    )


def health(resources: Iterable[ResourceState]) -> ApplicationLiveStateSnapshot.Status.ValueType:
    """As healthy as the worst resource that anybody knows about."""
    seen = {resource.health_status for resource in resources}
    if ResourceState.UNHEALTHY in seen:
        return ApplicationLiveStateSnapshot.UNHEALTHY
    if ResourceState.UNKNOWN in seen:
        return ApplicationLiveStateSnapshot.UNKNOWN
    return ApplicationLiveStateSnapshot.HEALTHY


def merge_sync(states: Sequence[ApplicationSyncState]) -> ApplicationSyncState:
    """The worst state, with the reasons of all who have one; none when all is well."""
    status = next((each for each in _WORST_FIRST if any(s.status == each for s in states)), UNKNOWN)
    if status in (SYNCED, DEPLOYING):
        return ApplicationSyncState(status=status)
    return ApplicationSyncState(
        status=status,
        short_reason="\n".join(state.short_reason for state in states if state.short_reason),
        reason="\n".join(state.reason for state in states if state.reason),
    )


def _timeless(resource: ResourceState) -> bytes:
    copy = ResourceState()
    copy.CopyFrom(resource)
    copy.updated_at = 0
    return copy.SerializeToString(deterministic=True)
