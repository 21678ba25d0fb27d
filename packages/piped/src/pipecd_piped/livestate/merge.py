# SPDX-License-Identifier: Apache-2.0
"""Merges the live states that the plugins of an application return. Pure.

A plugin that fails does not affect the others: their resources are shown, and the failure becomes
the reason of an unknown sync state.
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
    """The merged live state of an application, as it is reported."""

    resources: tuple[ResourceState, ...]
    health: ApplicationLiveStateSnapshot.Status.ValueType
    sync: ApplicationSyncState
    """Without its timestamp."""

    def same_as(self, other: "LiveStateView | None") -> bool:
        """Returns whether both are equal apart from their timestamps."""
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
    """Returns the view merged from the responses and the failures of plugins, by name."""
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
    """Returns the health of the worst resource; healthy when there are no resources."""
    seen = {resource.health_status for resource in resources}
    if ResourceState.UNHEALTHY in seen:
        return ApplicationLiveStateSnapshot.UNHEALTHY
    if ResourceState.UNKNOWN in seen:
        return ApplicationLiveStateSnapshot.UNKNOWN
    return ApplicationLiveStateSnapshot.HEALTHY


def merge_sync(states: Sequence[ApplicationSyncState]) -> ApplicationSyncState:
    """Returns the worst state with all reasons; none for a synced or deploying one."""
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
