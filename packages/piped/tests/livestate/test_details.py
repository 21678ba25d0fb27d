# SPDX-License-Identifier: Apache-2.0
"""Opening a resource: only what the live state of the same application names is asked for."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipecd_model.errors import NotFoundError, StateError
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.livestate.details import MOST_BYTES, MOST_LINES, USUAL_LINES, ResourceOpener
from pipecd_piped.livestate.merge import LiveStateView
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveStateSnapshot,
    ResourceState,
)
from pipecd_wire.model.application_pb2 import (
    Application,
    ApplicationDeploymentReference,
    ApplicationSyncState,
)
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.model.deployment_pb2 import DeployTargets
from pipecd_wire.pipecd.details.details_pb2 import ResourceDetails
from pipecd_wire.pipecd.plugin.plugin_pb2 import OpenResourceRequest, OpenResourceResponse
from pipecd_wire.pipecd.push.push_pb2 import OpenResource
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource


def resource(resource_id: str, *, plugin: str = "k8s", target: str = "here") -> ResourceState:
    return ResourceState(
        id=resource_id, name=resource_id, plugin_name=plugin, deploy_target=target, created_at=1
    )


class World:
    """Two applications, the plugin of both, and what was read and reported of them."""

    def __init__(self) -> None:
        self.state = ControlPlaneState()
        targets = {"k8s": DeployTargets(deploy_targets=["here"])}
        self.state.replace(
            applications=[
                Application(id=each, name=each, piped_id="p", deploy_targets_by_plugin=targets)
                for each in ("ours", "theirs")
            ]
        )
        self.reported = {"ours": [resource("pod")], "theirs": [resource("their-pod")]}
        self.fresh: dict[str, list[ResourceState]] = {}
        self.reads = 0
        self.deployed: ApplicationDeploymentReference | None = ApplicationDeploymentReference(
            deployment_id="d1", config_filename="app.yaml"
        )
        self.deployed.trigger.commit.hash = "c0ffee"
        self.opened: list[tuple[str, str]] = []
        self.asked: list[OpenResourceRequest] = []
        self.answer: OpenResourceResponse | None = OpenResourceResponse(
            details=ResourceDetails(manifest="m")
        )
        self.opener = ResourceOpener(
            state=self.state,
            plugins={"k8s": self, "other": self},
            configs=(),
            sources=self,  # type: ignore[arg-type]  # the one method that is used
            successes=self,
            reported=self,
            reader=self,
        )

    async def get(self, _application_id: str) -> ApplicationDeploymentReference | None:
        return self.deployed

    def list_resources(self, application_id: str) -> Sequence[ResourceState]:
        return self.reported.get(application_id, ())

    async def view(self, application: Application, _deployed: Any) -> LiveStateView | None:
        self.reads += 1
        if application.id not in self.fresh:
            return None
        return LiveStateView(
            resources=tuple(self.fresh[application.id]),
            health=ApplicationLiveStateSnapshot.HEALTHY,
            sync=ApplicationSyncState(),
        )

    @asynccontextmanager
    async def open(
        self, _path: ApplicationGitPath, commit: str, *, config_filename: str = "", **_: Any
    ) -> AsyncIterator[DeploymentSource]:
        self.opened.append((commit, config_filename))
        yield DeploymentSource(commit_hash=commit)

    async def open_resource(
        self, request: OpenResourceRequest, *, deadline: float
    ) -> OpenResourceResponse | None:
        self.asked.append(request)
        return self.answer

    async def look(self, resource_id: str = "pod", **fields: Any) -> ResourceDetails:
        wanted = {"application_id": "ours", "plugin_name": "k8s", "deploy_target": "here"}
        return await self.opener.open(OpenResource(resource_id=resource_id, **(wanted | fields)))


@pytest.fixture
def world() -> World:
    return World()


async def test_the_plugin_is_asked_with_the_files_of_the_deployed_commit(world: World) -> None:
    details = await world.look(container="web", log_lines=5)

    assert details.manifest == "m"
    (asked,) = world.asked
    assert asked.resource == resource("pod")
    assert asked.deploy_source.commit_hash == "c0ffee"
    assert world.opened == [("c0ffee", "app.yaml")]
    assert (asked.application_id, asked.deploy_target) == ("ours", "here")
    assert (asked.container, asked.log_lines) == ("web", 5)
    assert world.reads == 0, "what was reported is good enough"


@pytest.mark.parametrize(
    ("asked", "given"), [(0, USUAL_LINES), (-5, USUAL_LINES), (10**6, MOST_LINES)]
)
async def test_the_number_of_lines_has_a_default_and_a_limit(
    world: World, asked: int, given: int
) -> None:
    await world.look(log_lines=asked)

    assert world.asked[0].log_lines == given


async def test_a_resource_that_is_new_is_found_by_reading_again(world: World) -> None:
    world.fresh["ours"] = [resource("pod"), resource("new-pod")]

    await world.look("new-pod")

    assert [each.resource.id for each in world.asked] == ["new-pod"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"resource_id": "their-pod"},
        {"resource_id": "no-such-pod"},
        {"resource_id": "pod", "application_id": "theirs"},
        {"resource_id": "pod", "application_id": "nobody's"},
        {"resource_id": "pod", "deploy_target": "there"},
        {"resource_id": "pod", "plugin_name": "other"},
        {"resource_id": "pod", "plugin_name": "none"},
    ],
)
async def test_what_is_not_of_the_application_is_never_asked_for(
    world: World, wanted: dict[str, str]
) -> None:
    """Whoever sees one application must not read the objects of another through it."""
    world.fresh = {"ours": [resource("pod")], "theirs": [resource("their-pod")]}

    with pytest.raises(NotFoundError):
        await world.look(**wanted)

    assert world.asked == []


async def test_an_application_without_a_deployment_has_nothing_to_open(world: World) -> None:
    world.deployed = None

    with pytest.raises(StateError, match="never deployed"):
        await world.look()


async def test_a_plugin_that_cannot_show_more_is_named(world: World) -> None:
    world.answer = None

    with pytest.raises(StateError, match="'k8s' cannot show resources"):
        await world.look()


async def test_an_answer_has_a_limit(world: World) -> None:
    large = ResourceDetails(manifest="x" * MOST_BYTES)
    world.answer = OpenResourceResponse(details=large)

    with pytest.raises(StateError, match="more than 5 MiB"):
        await world.look()
