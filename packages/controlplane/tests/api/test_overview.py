# SPDX-License-Identifier: Apache-2.0
"""Applications by any property with counts, and what of a project needs a look."""

import time
from typing import Any

import pytest

from pipecd_controlplane.usecases import sessions
from pipecd_model.deployment import WAITS_FOR_DECISION
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import application_pb2, deployment_pb2, project_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.pipecd.api import overview_pb2 as pb
from pipecd_wire.pipecd.api.overview_pb2_grpc import OverviewServiceStub
from pipecd_wire.rpc import CallError, call, connect

Search = pb.SearchApplicationsRequest
SUCCESS, FAILURE = deployment_pb2.DEPLOYMENT_SUCCESS, deployment_pb2.DEPLOYMENT_FAILURE
RUNNING = deployment_pb2.DEPLOYMENT_RUNNING


async def add_application(plane: ServedControlPlane, name: str, **fields: Any) -> None:
    await plane.stores.applications.add(
        plane.build.application(id=f"id-{name}", name=name, project_id="default", **fields)
    )


async def deploy(plane: ServedControlPlane, name: str, status: int, **fields: Any) -> str:
    now = int(time.time())
    is_over = status in {SUCCESS, FAILURE}
    made = plane.build.deployment(
        id=f"d-{name}-{status}",
        project_id="default",
        application_id=f"id-{name}",
        application_name=name,
        status=status,
        created_at=now,
        updated_at=now,
        completed_at=now if is_over else 0,
        **fields,
    )
    await plane.stores.deployments.add(made)
    return made.id


async def search(plane: ServedControlPlane, **fields: Any) -> pb.SearchApplicationsResponse:
    stub = OverviewServiceStub(plane.admin.channel)
    return await call(stub.SearchApplications, Search(**fields))


def names(found: pb.SearchApplicationsResponse) -> list[str]:
    return [each.application.name for each in found.applications]


def counts(found: pb.SearchApplicationsResponse, name: str, key: str = "") -> dict[str, int]:
    for facet in found.facets:
        if (facet.property, facet.key) == (name, key):
            return {each.value: each.count for each in facet.values}
    return {}


async def fill(plane: ServedControlPlane) -> None:
    out = application_pb2.ApplicationSyncState(status=application_pb2.OUT_OF_SYNC, timestamp=1)
    await add_application(plane, "Shop Web", labels={"env": "prod", "kind": "kubernetes"})
    await add_application(plane, "shop-api", labels={"env": "prod"}, sync_state=out)
    await add_application(plane, "blog", labels={"env": "dev"})
    await add_application(plane, "old", disabled=True)
    await add_application(plane, "gone", deleted=True, disabled=True)


async def test_search_by_words_labels_and_state_with_counts(plane: ServedControlPlane) -> None:
    await fill(plane)
    everything = await search(plane)
    assert (names(everything), everything.total) == (["blog", "Shop Web", "shop-api"], 3)
    assert counts(everything, "label", "env") == {"prod": 2, "dev": 1}
    assert names(await search(plane, text="SHOP we")) == ["Shop Web"]
    assert names(await search(plane, text="id-blog")) == ["blog"]
    assert names(await search(plane, activity=Search.DISABLED)) == ["old"]
    assert (await search(plane, activity=Search.ANY)).total == 4

    dev = await search(plane, labels=[Search.LabelChoice(key="env", values=["dev"])])
    assert names(dev) == ["blog"]
    # What another choice would give, not what is left.
    assert counts(dev, "label", "env") == {"prod": 2, "dev": 1}
    assert counts(dev, "sync") == {"UNKNOWN": 1}
    out = await search(plane, sync_statuses=[application_pb2.OUT_OF_SYNC])
    assert names(out) == ["shop-api"]
    assert names(await search(plane, kinds=["kubernetes"])) == ["Shop Web"]


async def test_a_change_is_found_at_once(plane: ServedControlPlane) -> None:
    await fill(plane)
    assert counts(await search(plane), "status") == {"NEVER_DEPLOYED": 3}
    await deploy(plane, "blog", RUNNING)
    assert counts(await search(plane), "status") == {"NEVER_DEPLOYED": 2, "IN_PROGRESS": 1}
    found = await search(plane, statuses=[pb.IN_PROGRESS])
    assert found.applications[0].newest_deployment.id == f"d-blog-{RUNNING}"

    def rename(application: application_pb2.Application) -> None:
        application.name, application.labels["env"] = "diary", "test"

    def delete(application: application_pb2.Application) -> None:
        application.deleted = True

    await plane.stores.applications.update("default", "id-blog", rename)
    assert names(await search(plane, text="diary")) == ["diary"]
    assert counts(await search(plane), "label", "env") == {"prod": 2, "test": 1}
    await plane.stores.applications.update("default", "id-blog", delete)
    assert (await search(plane)).total == 2


async def test_what_is_out_of_sync_comes_before_what_is_well(plane: ServedControlPlane) -> None:
    out = application_pb2.ApplicationSyncState(status=application_pb2.OUT_OF_SYNC, timestamp=1)
    for name in ("a well", "b runs", "c failed"):
        await add_application(plane, name)
    await add_application(plane, "z differs", sync_state=out)
    await add_application(plane, "y deploys", sync_state=out, deploying=True)
    await deploy(plane, "a well", SUCCESS)
    await deploy(plane, "b runs", RUNNING)
    await deploy(plane, "c failed", FAILURE)
    await deploy(plane, "y deploys", RUNNING)

    found = await search(plane, order=Search.URGENCY)

    assert names(found) == ["c failed", "b runs", "y deploys", "z differs", "a well"]
    assert counts(found, "sync") == {"UNKNOWN": 3, "DEPLOYING": 1, "OUT_OF_SYNC": 1}
    deploying = await search(plane, sync_statuses=[application_pb2.DEPLOYING])
    assert names(deploying) == ["y deploys"], "as its row says, not as it was before"


@pytest.mark.parametrize("order", [Search.NAME, Search.CHANGED, Search.URGENCY])
async def test_pages_hold_each_application_once(
    plane: ServedControlPlane, order: Search.Order.ValueType
) -> None:
    for number in range(23):
        await add_application(plane, f"app {number % 7} {number}")
    await deploy(plane, "app 3 3", FAILURE)
    seen: list[str] = []
    cursor = ""
    while True:
        page = await search(plane, order=order, page_size=5, cursor=cursor, without_facets=True)
        assert (page.total, len(page.facets)) == (23, 0)
        seen += names(page)
        cursor = page.cursor
        if not cursor:
            break
    assert (len(seen), len(set(seen))) == (23, 23)
    if order != Search.NAME:
        assert seen[0] == "app 3 3"


@pytest.mark.parametrize("fields", [{"cursor": "x"}, {"cursor": "W10="}, {"text": "x" * 201}])
async def test_a_request_that_makes_no_sense_is_refused(
    plane: ServedControlPlane, fields: dict[str, Any]
) -> None:
    with pytest.raises(CallError) as caught:
        await search(plane, **fields)
    assert caught.value.status == "INVALID_ARGUMENT"


async def as_person(
    plane: ServedControlPlane, name: str, *roles: str, groups: tuple[str, ...] = ()
) -> pb.GetOverviewResponse:
    identity = sessions.UserIdentity(
        subject=name, via=access_pb2.Session.GITHUB, roles=roles, groups=groups
    )
    cookie = await sessions.start(plane.stores, "default", identity, now=lambda: int(time.time()))
    pairs = [("cookie", f"token={cookie}")]
    async with connect(plane.address, metadata=lambda: pairs) as channel:
        return await call(OverviewServiceStub(channel).GetOverview, pb.GetOverviewRequest())


async def test_the_overview_says_what_is_broken_waits_runs_and_changed(
    plane: ServedControlPlane,
) -> None:
    await fill(plane)
    failed = plane.build.stage("s1", name="APPLY", status=deployment_pb2.STAGE_FAILURE)
    await deploy(plane, "blog", FAILURE, stages=[failed], status_reason="it broke")
    waiting = plane.build.stage(
        "s1",
        name="WAIT_APPROVAL",
        status=deployment_pb2.STAGE_RUNNING,
        available_operation=deployment_pb2.MANUAL_OPERATION_APPROVE,
        authorized_operators=["ann"],
    )
    approval = await deploy(plane, "Shop Web", RUNNING, stages=[waiting])
    reason = f"s1 failed; {WAITS_FOR_DECISION}noon"
    decision = await deploy(plane, "shop-api", RUNNING, stages=[failed], status_reason=reason)

    ann, bob, viewer = [
        await as_person(plane, name, role)
        for name, role in (("ann", "Editor"), ("bob", "Editor"), ("ann", "Viewer"))
    ]
    assert [each.application_name for each in ann.broken] == ["blog"]
    assert ann.broken[0].deployment.stage_id == "s1"
    assert ann.broken[0].sentence == "it broke"
    assert {each.deployment.id for each in ann.waiting_for_me} == {approval, decision}
    assert [each.deployment.id for each in bob.waiting_for_me] == [decision]
    assert [each.approvers[0] for each in bob.waiting_for_others] == ["ann"]
    assert (viewer.waiting_for_me_count, viewer.waiting_for_others_count) == (0, 2)
    assert (ann.running_count, ann.changed_count) == (2, 1)
    assert (ann.application_count, ann.disabled_application_count) == (4, 1)
    assert ann.out_of_sync_count == 1

    told = await call(
        plane.admin.deployments.ExplainWait, api_pb2.ExplainWaitRequest(deployment_id=decision)
    )
    assert [
        each.is_for_caller for each in told.waits_for if each.kind == api_pb2.Wait.DECISION
    ] == [True]


async def test_a_right_that_is_limited_shows_what_it_covers(plane: ServedControlPlane) -> None:
    resource, policy = project_pb2.ProjectRBACResource, project_pb2.ProjectRBACPolicy

    def edit(project: project_pb2.Project) -> None:
        role = project.rbac_roles.add(name="Dev")
        role.policies.add(
            resources=[resource(type=resource.APPLICATION, labels={"env": "dev"})],
            actions=[policy.LIST],
        )
        project.user_groups.add(sso_group="dev", role="Dev")

    await plane.stores.projects.update("default", edit)
    await fill(plane)
    await deploy(plane, "blog", FAILURE, labels={"env": "dev"}, status_reason="it broke")
    seen = await as_person(plane, "ann", groups=("dev",))
    # Its deployments may not be seen, so neither how they ended.
    assert (seen.application_count, seen.broken_count, seen.changed_count) == (1, 0, 0)
    assert seen.piped_count == 0
