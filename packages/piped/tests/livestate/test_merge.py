# SPDX-License-Identifier: Apache-2.0
"""One view from the answers of several plugins."""

from typing import TypeAlias

import pytest

from pipecd_piped.livestate.merge import health, merge, merge_sync
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveState,
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
    ApplicationSyncStatus,
)
from pipecd_wire.plugin.livestateapi.api_pb2 import GetLivestateResponse

HEALTHY, UNHEALTHY, UNCLEAR = (
    ResourceState.HEALTHY,
    ResourceState.UNHEALTHY,
    ResourceState.UNKNOWN,
)

Health: TypeAlias = ResourceState.HealthStatus.ValueType
Sync: TypeAlias = ApplicationSyncStatus.ValueType


def resource(name: str = "r", health_status: Health = HEALTHY, at: int = 1) -> ResourceState:
    return ResourceState(
        id=name, name=name, health_status=health_status, created_at=1, updated_at=at
    )


def answer(*resources: ResourceState, status: Sync | None = SYNCED) -> GetLivestateResponse:
    made = GetLivestateResponse(application_live_state=ApplicationLiveState(resources=resources))
    if status is not None:
        made.sync_state.CopyFrom(state(status))
    return made


def state(status: Sync, reason: str = "") -> ApplicationSyncState:
    return ApplicationSyncState(
        status=status,
        short_reason=reason,
        reason=reason and f"{reason}!",
    )


@pytest.mark.parametrize(
    ("seen", "worst"),
    [
        ([], ApplicationLiveStateSnapshot.HEALTHY),
        ([HEALTHY], ApplicationLiveStateSnapshot.HEALTHY),
        ([HEALTHY, UNCLEAR], ApplicationLiveStateSnapshot.UNKNOWN),
        ([UNCLEAR, UNHEALTHY, HEALTHY], ApplicationLiveStateSnapshot.UNHEALTHY),
    ],
)
def test_an_application_is_as_healthy_as_its_worst_resource(
    seen: list[Health], worst: ApplicationLiveStateSnapshot.Status.ValueType
) -> None:
    assert health([resource(health_status=each) for each in seen]) == worst


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        ([], UNKNOWN),
        ([SYNCED, SYNCED], SYNCED),
        ([SYNCED, UNKNOWN], UNKNOWN),
        ([UNKNOWN, OUT_OF_SYNC, SYNCED], OUT_OF_SYNC),
        ([OUT_OF_SYNC, INVALID_CONFIG], INVALID_CONFIG),
        ([INVALID_CONFIG, DEPLOYING], DEPLOYING),
    ],
)
def test_the_worst_state_wins(states: list[Sync], worst: Sync) -> None:
    assert merge_sync([state(each) for each in states]).status == worst


def test_reasons_are_joined_unless_all_is_well() -> None:
    both = merge_sync([state(OUT_OF_SYNC, "two files"), state(UNKNOWN, "no answer")])
    fine = merge_sync([state(SYNCED, "as wanted")])

    assert (both.short_reason, both.reason) == ("two files\nno answer", "two files!\nno answer!")
    assert (fine.short_reason, fine.reason) == ("", "")


def test_a_plugin_without_a_sync_state_makes_it_unknown_and_nothing_worse() -> None:
    view = merge({"go": answer(resource(), status=None)}, {})

    assert view.sync.status == UNKNOWN
    assert "does not say" in view.sync.short_reason


def test_a_plugin_that_fails_does_not_silence_the_others() -> None:
    view = merge({"files": answer(resource("a"))}, {"cloud": "it is raining"})

    assert [(each.name, each.plugin_name) for each in view.resources] == [("a", "files")]
    assert view.sync.status == UNKNOWN
    assert view.sync.reason == "cloud: it is raining"


def test_the_time_of_a_look_is_no_change() -> None:
    first = merge({"files": answer(resource(at=1))}, {})
    later = merge({"files": answer(resource(at=2))}, {})
    sick = merge({"files": answer(resource(health_status=UNHEALTHY))}, {})
    drifted = merge({"files": answer(resource(), status=OUT_OF_SYNC)}, {})
    more = merge({"files": answer(resource(), resource("b"))}, {})

    assert later.same_as(first)
    assert not first.same_as(None)
    assert not any(each.same_as(first) for each in (sick, drifted, more))
