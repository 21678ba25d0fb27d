# SPDX-License-Identifier: Apache-2.0
"""What GetMyRights tells is what the server does: no more, no less."""

import time

from pipecd_controlplane.usecases import sessions
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.pipecd.api.access_pb2_grpc import AccessServiceStub
from pipecd_wire.rpc import call, connect

APPROVE = "pipecd.api.v1.DeploymentService/ApproveStage"
WATCH = "pipecd.api.v1.ProjectService/WatchChanges"
GENERATE = "pipecd.api.v1.ApiKeyService/GenerateApiKey"


async def read_rights(
    plane: ServedControlPlane, *, roles: tuple[str, ...] = (), groups: tuple[str, ...] = ()
) -> access_pb2.GetMyRightsResponse:
    identity = sessions.UserIdentity(
        subject="ann", via=access_pb2.Session.GITHUB, roles=roles, groups=groups
    )
    cookie = await sessions.start(plane.stores, "default", identity, now=lambda: int(time.time()))
    pairs = [("cookie", f"token={cookie}")]
    async with connect(plane.address, metadata=lambda: pairs) as channel:
        return await call(AccessServiceStub(channel).GetMyRights, access_pb2.GetMyRightsRequest())


async def test_a_viewer_is_not_told_of_what_only_an_editor_may(plane: ServedControlPlane) -> None:
    viewer = await read_rights(plane, roles=("Viewer",))
    editor = await read_rights(plane, roles=("Editor",))
    assert (viewer.name, viewer.project_id, list(viewer.roles)) == ("ann", "default", ["Viewer"])
    assert viewer.session_id
    of_viewer, of_editor = ({each.method for each in who.calls} for who in (viewer, editor))
    assert {APPROVE, WATCH} & of_viewer == {WATCH}
    assert {APPROVE, WATCH} <= of_editor
    assert GENERATE not in of_editor
    assert of_viewer < of_editor


async def test_a_right_that_is_limited_to_labels_says_so(plane: ServedControlPlane) -> None:
    resource, policy = project_pb2.ProjectRBACResource, project_pb2.ProjectRBACPolicy

    def edit(project: project_pb2.Project) -> None:
        role = project.rbac_roles.add(name="Shop")
        role.policies.add(
            resources=[resource(type=resource.DEPLOYMENT, labels={"team": "shop"})],
            actions=[policy.ALL],
        )
        project.user_groups.add(sso_group="shop", role="Shop")

    await plane.stores.projects.update("default", edit)
    limited = await read_rights(plane, groups=("shop",))
    approve = next(each for each in limited.calls if each.method == APPROVE)
    assert [dict(each.labels) for each in approve.label_sets] == [{"team": "shop"}]
    # It does not look at labels, so such a right does not reach it.
    assert WATCH not in {each.method for each in limited.calls}


async def test_a_key_is_told_what_it_may(plane: ServedControlPlane) -> None:
    told = await call(
        AccessServiceStub(plane.admin.channel).GetMyRights, access_pb2.GetMyRightsRequest()
    )
    methods = {each.method for each in told.calls}
    assert {APPROVE, WATCH} <= methods
    assert GENERATE not in methods  # only for people
    assert not told.session_id
