# SPDX-License-Identifier: Apache-2.0
"""When an application is looked at, and what is told of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipecd_model.errors import UnavailableError
from pipecd_piped.controlplane.state import ControlPlaneState, StateChange
from pipecd_piped.livestate.merge import LiveStateView
from pipecd_piped.livestate.reporter import LiveStateReporter
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveStateSnapshot
from pipecd_wire.model.application_pb2 import (
    DEPLOYING,
    OUT_OF_SYNC,
    SYNCED,
    Application,
    ApplicationDeploymentReference,
    ApplicationSyncState,
)
from pipecd_wire.model.deployment_pb2 import (
    DEPLOYMENT_RUNNING,
    DEPLOYMENT_SUCCESS,
    Deployment,
)

HEALTHY = ApplicationLiveStateSnapshot.HEALTHY


class World:
    """One application, what is deployed of it, and everything that was told."""

    def __init__(self) -> None:
        self.state = ControlPlaneState()
        self.sync = ApplicationSyncState(status=SYNCED)
        self.health = HEALTHY
        self.offers = True
        self.trouble = False
        self.deployed: ApplicationDeploymentReference | None = ApplicationDeploymentReference(
            deployment_id="d1"
        )
        self.looks = 0
        self.refusals = 0
        self.live: list[ApplicationLiveStateSnapshot] = []
        self.told: list[ApplicationSyncState] = []
        self.changed = asyncio.Event()

    async def view(self, _application: Application, _deployed: Any) -> LiveStateView | None:
        self.looks += 1
        self.changed.set()
        if not self.offers:
            return None
        return LiveStateView(resources=(), health=self.health, sync=self.sync)

    async def get(self, _application_id: str) -> ApplicationDeploymentReference | None:
        return self.deployed

    async def live_state(self, snapshot: ApplicationLiveStateSnapshot) -> None:
        if self.refusals:
            self.refusals -= 1
            raise UnavailableError("away")
        self.live.append(snapshot)

    def sync_state(self, _application_id: str, state: ApplicationSyncState) -> None:
        self.told.append(state)

    @asynccontextmanager
    async def running(
        self, interval: float = 3600, **options: Any
    ) -> AsyncIterator[LiveStateReporter]:
        states = LiveStateReporter(
            state=self.state,
            reader=self,  # type: ignore[arg-type]
            successes=self,
            report_live_state=self.live_state,
            report_sync_state=self.sync_state,
            is_in_trouble=lambda _: self.trouble,
            interval_seconds=interval,
            **options,
        )
        task = asyncio.create_task(states.run())
        yield states
        task.cancel()
        await asyncio.wait([task])

    async def until_looks(self, count: int) -> None:
        """Wait for that many looks, and for what is told after them."""
        async with asyncio.timeout(30):
            while self.looks < count:
                self.changed.clear()
                await self.changed.wait()
        for _ in range(20):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def deployment(self, status: Any) -> Deployment:
        return Deployment(id="d2", application_id="a1", status=status)

    @property
    def statuses(self) -> list[int]:
        return [state.status for state in self.told]


@pytest.fixture
def world() -> World:
    made = World()
    made.state.replace(applications=[Application(id="a1", piped_id="p", project_id="x")])
    return made


async def test_an_application_is_looked_at_when_it_comes(world: World) -> None:
    async with world.running():
        await world.until_looks(1)

    assert [each.application_id for each in world.live] == ["a1"]
    assert world.live[0].version.timestamp > 0
    assert world.statuses == [SYNCED]
    assert world.told[0].head_deployment_id == "d1"


async def test_what_has_not_changed_is_not_told_again(world: World) -> None:
    async with world.running() as states:
        await world.until_looks(1)
        states.look_at("a1")
        await world.until_looks(2)

    assert (len(world.live), len(world.told)) == (1, 1)


async def test_a_drift_is_told_at_the_next_look(world: World) -> None:
    async with world.running(interval=0.01):
        await world.until_looks(1)
        world.sync = ApplicationSyncState(status=OUT_OF_SYNC, short_reason="a file differs")
        await world.until_looks(world.looks + 2)

    assert world.statuses == [SYNCED, OUT_OF_SYNC]
    assert world.told[-1].short_reason == "a file differs"


async def test_nothing_is_looked_at_while_it_is_deployed(world: World) -> None:
    async with world.running() as states:
        await world.until_looks(1)
        world.state.merge(StateChange(deployments=(world.deployment(DEPLOYMENT_RUNNING),)))
        await world.settle()
        states.look_at("a1")
        await world.settle()
        assert world.looks == 1
        assert world.statuses == [SYNCED, DEPLOYING]

        world.state.merge(StateChange(deployments=(world.deployment(DEPLOYMENT_SUCCESS),)))
        await world.until_looks(2)

    assert world.statuses == [SYNCED, DEPLOYING, SYNCED]


async def test_an_announced_application_is_looked_at_soon(world: World) -> None:
    """A plugin that watches its platform need not wait for the next minute."""
    async with world.running() as states:
        await world.until_looks(1)
        world.sync = ApplicationSyncState(status=OUT_OF_SYNC, short_reason="a pod differs")
        states.take_announced("k8s", ["a1"])
        await world.until_looks(2)

    assert world.statuses == [SYNCED, OUT_OF_SYNC]


async def test_announcements_that_follow_each_other_closely_are_one_look(world: World) -> None:
    async with world.running() as states:
        await world.until_looks(1)
        for _ in range(50):
            states.take_announced("k8s", ["a1"])
            await world.settle()
        await world.until_looks(2)

    assert world.looks == 2


async def test_an_application_of_others_or_of_another_plugin_cannot_be_announced(
    world: World,
) -> None:
    asked: list[tuple[str, str]] = []

    def has_plugin(application: Application, plugin: str) -> bool:
        asked.append((application.id, plugin))
        return plugin == "k8s"

    async with world.running(has_plugin=has_plugin) as states:
        await world.until_looks(1)
        states.take_announced("other", ["a1", "nobody"])
        await world.settle()
        assert (asked, states._announced) == ([("a1", "other")], {})
        states.take_announced("k8s", ["a1"])
        await world.until_looks(2)

    assert world.looks == 2


async def test_an_announced_change_during_a_deployment_shows_resources_and_no_drift(
    world: World,
) -> None:
    """A canary that crashes while a stage waits is to be seen in the live tree."""
    async with world.running(deploying_gap_seconds=0.01) as states:
        await world.until_looks(1)
        world.state.merge(StateChange(deployments=(world.deployment(DEPLOYMENT_RUNNING),)))
        await world.settle()
        world.health = ApplicationLiveStateSnapshot.UNHEALTHY
        world.sync = ApplicationSyncState(status=OUT_OF_SYNC)
        states.take_announced("k8s", ["a1"])
        await world.until_looks(2)

    assert [each.health_status for each in world.live] == [HEALTHY, world.health]
    assert world.statuses == [SYNCED, DEPLOYING]


async def test_stages_of_a_deployment_do_not_hasten_what_was_announced_during_it(
    world: World,
) -> None:
    """Hundreds of small deployments at once are not read in the midst of each."""
    async with world.running(deploying_gap_seconds=3600) as states:
        await world.until_looks(1)
        for _ in range(3):
            world.state.merge(StateChange(deployments=(world.deployment(DEPLOYMENT_RUNNING),)))
            states.take_announced("k8s", ["a1"])
            await world.settle()
        assert world.looks == 1

        world.state.merge(StateChange(deployments=(world.deployment(DEPLOYMENT_SUCCESS),)))
        await world.until_looks(2)

    assert world.statuses == [SYNCED, DEPLOYING, SYNCED]


async def test_nothing_is_told_of_an_application_without_live_state(world: World) -> None:
    world.offers = False
    async with world.running():
        await world.until_looks(1)
        world.state.merge(StateChange(deployments=(world.deployment(DEPLOYMENT_RUNNING),)))
        await world.settle()

    assert (world.live, world.told) == ([], [])


async def test_nothing_is_asked_before_the_first_success(world: World) -> None:
    world.deployed = None
    async with world.running() as states:
        states.look_at("a1")
        await world.settle()

    assert world.looks == 0


async def test_trouble_of_the_file_is_not_painted_over_and_news_come_after_it(
    world: World,
) -> None:
    world.trouble = True
    async with world.running() as states:
        await world.until_looks(1)
        assert world.told == []

        world.trouble = False
        states.look_at("a1")
        await world.until_looks(2)

    assert world.statuses == [SYNCED]


async def test_a_report_that_was_not_taken_is_repeated(world: World) -> None:
    world.refusals = 1
    async with world.running() as states:
        await world.until_looks(1)
        assert world.live == []
        states.look_at("a1")
        await world.until_looks(2)

    assert len(world.live) == 1
    assert world.statuses == [SYNCED]


class Stuck(World):
    """Some applications are never answered about, and one breaks whoever looks."""

    async def view(self, application: Application, _deployed: Any) -> LiveStateView | None:
        if application.id.startswith("stuck"):
            await asyncio.Event().wait()
        if application.id.startswith("odd"):
            raise ValueError("nobody expected this")
        return await super().view(application, _deployed)


async def test_a_plugin_that_never_answers_holds_up_its_own_applications_only() -> None:
    world = Stuck()
    applications = [Application(id=f"stuck {number}") for number in range(10)]
    world.state.replace(applications=[*applications, Application(id="a1")])
    async with world.running(
        lanes=("stuck", "good"), lane_of=lambda each: "stuck" if "stuck" in each.id else "good"
    ) as states:
        await world.until_looks(1)
        states.look_at("a1")
        await world.until_looks(2)

    assert [each.application_id for each in world.live] == ["a1"]


async def test_an_application_that_nobody_expected_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Stuck()
    odd = [Application(id=f"odd {number}") for number in range(3)]
    world.state.replace(applications=[*odd, Application(id="a1")])
    async with world.running() as states:
        await world.until_looks(1)
        for each in odd:
            states.look_at(each.id)
        states.look_at("a1")
        await world.until_looks(2)

    assert [each.application_id for each in world.live] == ["a1"]
    assert "livestate.bug" in caplog.text
