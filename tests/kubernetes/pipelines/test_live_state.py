# SPDX-License-Identifier: Apache-2.0
"""A change in a cluster reaches the control plane by itself, long before piped would ask again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    make_application,
    make_config_map,
    make_deployment,
    make_manifests,
)
from pipecd_wire.apiservice import service_pb2 as api_pb
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveStateSnapshot,
    ResourceState,
)
from pipecd_wire.model.application_pb2 import OUT_OF_SYNC, SYNCED, Application
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import CallError, call

LIMIT_SECONDS = 30.0
"""Half of what piped waits between two questions of its own."""


async def wait_live(
    site: KubernetesSite, holds: Callable[[ApplicationLiveStateSnapshot], bool]
) -> ApplicationLiveStateSnapshot:
    """Reads the live state at the control plane until something is true of it."""
    request = own.GetLiveStateRequest(application_id=site.application_id)
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            try:
                answer = await call(site.client.applications.GetLiveState, request)
            except CallError as error:
                if error.status != "NOT_FOUND":
                    raise
            else:
                if holds(answer.snapshot):
                    return answer.snapshot
            await asyncio.sleep(0.05)


async def wait_status(site: KubernetesSite, status: int) -> Application:
    """Reads the sync state at the control plane until it is this."""
    request = api_pb.GetApplicationRequest(application_id=site.application_id)
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            found = (await call(site.client.api.GetApplication, request)).application
            if found.sync_state.status == status:
                return found
            await asyncio.sleep(0.05)


def find_pods(snapshot: ApplicationLiveStateSnapshot) -> list[ResourceState]:
    resources = snapshot.application_live_state.resources
    return [each for each in resources if each.resource_type == "Pod"]


@pytest.mark.parametrize("is_named_by_file", [False, True], ids=["registered", "named"])
async def test_a_crash_and_a_change_by_hand_are_seen_and_told_from_each_other(
    is_named_by_file: bool, make_site: Callable[..., KubernetesSite], namespace: Namespace
) -> None:
    """Also when only the application file says to which deploy targets it is deployed."""
    path = f"live-{is_named_by_file}"
    site = make_site(path, is_registered_with_targets=not is_named_by_file)
    spec: dict[str, Any] = {"deployTargets": {"kubernetes": ["main"]}} if is_named_by_file else {}
    options = {"input": {"namespace": namespace.name}}
    commit = site.commit(
        make_application(path, options=options, **spec),
        all__yaml=make_manifests(make_deployment(), make_config_map(colour="green")),
    )
    await site.succeed(commit)
    await wait_status(site, SYNCED)
    # The pods are there before they are ready: until then the application is not healthy.
    await wait_live(
        site,
        lambda seen: (
            len(find_pods(seen)) == 2 and seen.health_status == ApplicationLiveStateSnapshot.HEALTHY
        ),
    )

    await asyncio.to_thread(namespace.set_behaviour, "crash")
    await wait_live(
        site,
        lambda seen: (
            seen.health_status == ApplicationLiveStateSnapshot.UNHEALTHY
            and any("CrashLoopBackOff" in each.health_description for each in find_pods(seen))
        ),
    )
    await wait_status(site, SYNCED)

    place = ("v1", "ConfigMap", "web", namespace.name)
    await asyncio.to_thread(namespace.api.patch, *place, {"data": {"colour": "red"}})
    drifted = await wait_status(site, OUT_OF_SYNC)
    assert drifted.sync_state.short_reason == "1 object differs from git: 1 changed"
    assert "red" not in drifted.sync_state.reason
