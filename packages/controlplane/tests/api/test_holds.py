# SPDX-License-Identifier: Apache-2.0
"""Hold, pin and roll-back, over the real wire."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pipecd_model.deployment import WAITS_FOR_DECISION
from pipecd_model.ids import id_of_command
from pipecd_test_support.answering_agent import answering
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_test_support.waiting import wait_soon
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.control import control_pb2 as control
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import call, stream
from pipecd_wire.rpc.channel import Pairs

if TYPE_CHECKING:  # they are in the stub files only
    from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceAsyncStub

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


@dataclass
class World:
    """An application of an agent that watches."""

    plane: ServedControlPlane
    agent: AgentClient
    application_id: str
    made: int = 0

    @property
    def applications(self) -> "ApplicationServiceAsyncStub":
        return self.plane.admin.applications

    async def deploy(self, commit: str, status: int = model.DEPLOYMENT_SUCCESS) -> str:
        """A deployment of a commit that ended so; 0 is one that is only planned."""
        self.made += 1
        deployment_id = f"d{self.made}"
        application = await self.plane.stores.applications.get("default", self.application_id)
        await call(
            self.agent.service.CreateDeployment,
            pipedservice.CreateDeploymentRequest(
                deployment=self.plane.build.deployment(
                    id=deployment_id,
                    application_id=self.application_id,
                    piped_id=self.agent.id,
                    project_id="default",
                    trigger=model.DeploymentTrigger(
                        commit=model.Commit(
                            hash=commit, message="m", author="a", branch="main", created_at=1
                        ),
                        timestamp=1,
                    ),
                )
            ),
        )
        await call(
            self.agent.service.ReportDeploymentPlanned,
            pipedservice.ReportDeploymentPlannedRequest(
                deployment_id=deployment_id,
                running_commit_hash=(
                    application.most_recently_successful_deployment.trigger.commit.hash
                ),
                stages=[self.plane.build.stage("s1")],
            ),
        )
        await self._refer(deployment_id, model.DEPLOYMENT_PENDING)
        if status:
            await self.end(deployment_id, status)
        return deployment_id

    async def end(self, deployment_id: str, status: int) -> None:
        final = model.DeploymentStatus.ValueType(status)
        await call(
            self.agent.service.ReportDeploymentCompleted,
            pipedservice.ReportDeploymentCompletedRequest(
                deployment_id=deployment_id,
                status=final,
                status_reason="s1 failed",
                completed_at=1000,
            ),
        )
        if final == model.DEPLOYMENT_SUCCESS:
            await self._refer(deployment_id, final)

    async def _refer(self, deployment_id: str, status: model.DeploymentStatus.ValueType) -> None:
        deployment = await self.plane.read_deployment(deployment_id)
        await call(
            self.agent.service.ReportApplicationMostRecentDeployment,
            pipedservice.ReportApplicationMostRecentDeploymentRequest(
                application_id=self.application_id,
                status=status,
                deployment=ApplicationDeploymentReference(
                    deployment_id=deployment_id, trigger=deployment.trigger, started_at=1
                ),
            ),
        )

    async def control(self) -> control.ApplicationControl:
        request = pb.GetApplicationControlRequest(application_id=self.application_id)
        return (await call(self.applications.GetApplicationControl, request)).control

    async def roll_back(self, **fields: Any) -> pb.RollBackApplicationResponse:
        request = pb.RollBackApplicationRequest(
            application_id=self.application_id, reason="too slow", **fields
        )
        return await call(self.applications.RollBackApplication, request)

    async def report(self, command_id: str, *, succeeded: bool, reason: str = "") -> None:
        request = push.ReportCommandHandledRequest(
            command_id=command_id, succeeded=succeeded, reason=reason
        )
        await call(self.agent.push.ReportCommandHandled, request)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[AsyncIterator[push.WatchResponse]]:
        request = push.WatchRequest(instance_id="i", data_folder_id="folder")
        async with aclosing(stream(self.agent.push.Watch, request)) as messages:
            yield messages


@pytest.fixture
async def world(plane: ServedControlPlane) -> World:
    agent = await plane.agent()
    made = World(plane=plane, agent=agent, application_id=await plane.application(agent))
    async with made.watching() as messages:
        await wait_soon(anext(messages))
    return made


class TestHold:
    @pytest.mark.parametrize("status", [model.DEPLOYMENT_FAILURE, model.DEPLOYMENT_CANCELLED])
    async def test_what_failed_is_held_until_something_else_succeeds(
        self, world: World, status: int
    ) -> None:
        failed = await world.deploy(ONE, status)

        held = await world.control()
        assert (held.hold.commit_hash, held.hold.deployment_id) == (ONE, failed)
        assert held.hold.reason == "s1 failed"

        await world.deploy(ONE)
        assert not (await world.control()).HasField("hold")

    async def test_a_repeated_report_sets_no_hold_again(self, world: World) -> None:
        """A person may have released it between the two."""
        failed = await world.deploy(ONE, model.DEPLOYMENT_FAILURE)
        request = pb.ReleaseHoldRequest(application_id=world.application_id)
        await call(world.applications.ReleaseHold, request)

        await world.end(failed, model.DEPLOYMENT_FAILURE)

        assert not (await world.control()).HasField("hold")

    async def test_another_commit_ends_the_hold_when_its_deployment_is_created(
        self, world: World
    ) -> None:
        await world.deploy(ONE, model.DEPLOYMENT_FAILURE)

        await world.deploy(TWO, 0)

        assert not (await world.control()).HasField("hold")

    @pytest.mark.parametrize("status", [model.DEPLOYMENT_FAILURE, model.DEPLOYMENT_CANCELLED])
    async def test_what_ends_while_a_newer_commit_waits_holds_nothing(
        self, world: World, status: int
    ) -> None:
        running = await world.deploy(ONE, 0)
        waiting = await world.deploy(TWO, 0)

        await world.end(running, status)
        assert not (await world.control()).HasField("hold")

        await world.end(waiting, status)
        assert (await world.control()).hold.commit_hash == TWO

    async def test_a_release_is_one_command_with_the_persons_name(self, world: World) -> None:
        failed = await world.deploy(ONE, model.DEPLOYMENT_FAILURE)
        extra: Pairs = [("pipecd-idempotency-key", "once")]
        user = await world.plane.user(world.plane.admin.key, extra=extra)
        service = user.applications
        request = pb.ReleaseHoldRequest(application_id=world.application_id, reason="fixed")
        async with world.watching() as messages:
            await wait_soon(anext(messages))
            first = await call(service.ReleaseHold, request)
            again = await call(service.ReleaseHold, request)
            commands: list[push.Command] = []
            while not commands:
                commands += (await wait_soon(anext(messages))).change.own_commands

        assert first == again
        assert first.deployment_id == id_of_command(first.command_id)
        assert first.commit_hash == ONE
        (command,) = commands
        assert command.id == first.command_id
        assert command.type == push.Command.RELEASE_HOLD
        assert (command.commit_hash, command.target_deployment_id) == (ONE, failed)
        assert (command.commander, command.reason) == ("admin", "fixed")
        assert not (await world.control()).HasField("hold")

    async def test_what_is_not_held_is_not_released(self, world: World) -> None:
        request = pb.ReleaseHoldRequest(application_id=world.application_id)
        error = await call_refused(world.applications.ReleaseHold, request)
        assert error.status == "FAILED_PRECONDITION"
        assert "no commit of the application 'hello' is held" in error.message

    async def test_the_list_has_those_that_have_one(self, world: World) -> None:
        other = await world.plane.application(world.agent, name="other")
        await world.deploy(ONE, model.DEPLOYMENT_FAILURE)

        answer = await call(
            world.applications.ListApplicationControls, pb.ListApplicationControlsRequest()
        )
        assert [each.application_id for each in answer.controls] == [world.application_id]

        await world.deploy(TWO)
        answer = await call(
            world.applications.ListApplicationControls, pb.ListApplicationControlsRequest()
        )
        assert not answer.controls
        request = pb.GetApplicationControlRequest(application_id=other)
        found = (await call(world.applications.GetApplicationControl, request)).control
        assert found == control.ApplicationControl(application_id=other)


class TestRollBack:
    async def test_it_pins_and_commands_in_one_transaction(self, world: World) -> None:
        first = await world.deploy(ONE)
        await world.deploy(TWO)
        async with world.watching() as messages:
            await wait_soon(anext(messages))
            answer = await world.roll_back()
            change = push.Change()
            while not change.own_commands:
                change.MergeFrom((await wait_soon(anext(messages))).change)

        assert (answer.commit_hash, answer.target_deployment_id) == (ONE, first)
        assert answer.deployment_id == id_of_command(answer.command_id)
        (command,) = change.own_commands
        assert (command.type, command.commit_hash) == (push.Command.ROLL_BACK, ONE)
        assert change.controls[-1].pin.commit_hash == ONE  # no later than the command
        pin = (await world.control()).pin
        assert (pin.by, pin.reason, pin.deployment_id) == (
            "admin",
            "too slow",
            answer.deployment_id,
        )
        record = await world.plane.stores.records.find("default", answer.deployment_id)
        assert record is not None
        assert record.message.type == control.DeploymentRecord.ROLL_BACK
        assert record.message.target_deployment_id == first

    async def test_what_ran_before_a_failure_is_what_runs(self, world: World) -> None:
        await world.deploy(ONE)
        await world.deploy(TWO)
        await world.deploy(THREE, model.DEPLOYMENT_FAILURE)

        assert (await world.roll_back()).commit_hash == TWO

    async def test_a_second_roll_back_goes_further_back_never_forward(self, world: World) -> None:
        await world.deploy(ONE)
        await world.deploy(TWO)
        await world.deploy(THREE)
        answer = await world.roll_back()
        assert answer.commit_hash == TWO
        rolled = await self.carry_out(world, answer)

        older = await call(
            world.plane.admin.deployments.RollBackDeployment,
            pb.RollBackDeploymentRequest(deployment_id=rolled),
        )

        assert (await world.control()).pin.commit_hash == ONE
        assert older.deployment_id == id_of_command(older.command_id)

    async def carry_out(self, world: World, answer: pb.RollBackApplicationResponse) -> str:
        """What the piped does with the command: the deployment has the id that was answered."""
        made = build_roll_back(world, answer)
        await call(
            world.agent.service.CreateDeployment,
            pipedservice.CreateDeploymentRequest(deployment=made),
        )
        await world.report(answer.command_id, succeeded=True)
        await world.end(made.id, model.DEPLOYMENT_SUCCESS)
        return made.id

    async def test_to_a_deployment_or_the_start_of_a_commit(self, world: World) -> None:
        first = await world.deploy(ONE)
        await world.deploy(TWO)
        await world.deploy(THREE)

        by_deployment = await world.roll_back(deployment_id=first)
        by_commit = await world.roll_back(commit_hash=TWO[:8].upper())

        assert by_deployment.commit_hash == ONE
        assert (by_commit.commit_hash, by_commit.target_deployment_id) == (TWO, "d2")

    async def test_a_whole_hash_that_was_never_deployed_is_left_to_the_agent(
        self, world: World
    ) -> None:
        await world.deploy(ONE)

        answer = await world.roll_back(commit_hash="f" * 40)

        assert (answer.commit_hash, answer.target_deployment_id) == ("f" * 40, "")

    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({"commit_hash": "fffffff"}, "has not deployed the commit 'fffffff' successfully"),
            ({"commit_hash": "HEAD~1"}, "is no commit"),
            ({"deployment_id": "d2"}, "the deployment 'd2' did not succeed"),
            ({"deployment_id": "nobody's"}, "there is no deployment"),
            ({"deployment_id": "d1", "commit_hash": ONE}, "are both set"),
            ({}, "nothing ran before the deployment 'd1'"),
        ],
    )
    async def test_what_cannot_be_is_refused_with_a_sentence(
        self, world: World, fields: dict[str, Any], sentence: str
    ) -> None:
        await world.deploy(ONE)
        if fields:
            await world.deploy(TWO, model.DEPLOYMENT_FAILURE)
        request = pb.RollBackApplicationRequest(application_id=world.application_id, **fields)

        error = await call_refused(world.applications.RollBackApplication, request)

        assert sentence in error.message
        assert not (await world.control()).HasField("pin")

    async def test_a_refused_roll_back_takes_its_pin_back_and_restores_the_one_before(
        self, world: World
    ) -> None:
        await world.deploy(ONE)
        await world.deploy(TWO)
        before = await world.roll_back(commit_hash=ONE)
        pinned = (await world.control()).pin
        refused = await world.roll_back(commit_hash="f" * 40)
        assert (await world.control()).pin.commit_hash == "f" * 40

        await world.report(refused.command_id, succeeded=False, reason="no such commit")

        assert (await world.control()).pin == pinned
        outcome = await call(
            world.applications.GetCommandOutcome,
            pb.GetCommandOutcomeRequest(command_id=refused.command_id),
        )
        assert (outcome.handled, outcome.succeeded) == (True, False)
        assert outcome.reason == "no such commit"

        await world.report(before.command_id, succeeded=False, reason="late")
        assert not (await world.control()).HasField("pin")

    async def test_a_plain_sync_is_refused_while_pinned_until_the_release(
        self, world: World
    ) -> None:
        await world.deploy(ONE)
        await world.roll_back(commit_hash=ONE)
        sync = apiservice.SyncApplicationRequest(application_id=world.application_id)

        error = await call_refused(world.plane.admin.api.SyncApplication, sync)
        assert error.status == "FAILED_PRECONDITION"
        assert "is pinned: admin rolled back to 1111111, because: too slow" in error.message

        request = pb.ReleasePinRequest(application_id=world.application_id)
        released = await call(world.applications.ReleasePin, request)
        assert released.pin.commit_hash == ONE
        await call(world.plane.admin.api.SyncApplication, sync)
        error = await call_refused(world.applications.ReleasePin, request)
        assert "is not pinned" in error.message

    async def test_the_agent_is_told_of_the_record_with_the_deployment(self, world: World) -> None:
        """It decides by the record whether the deployment waits for a window."""
        await world.deploy(ONE)
        answer = await world.roll_back(commit_hash=ONE)
        async with world.watching() as messages:
            first = await wait_soon(anext(messages))
            assert not first.snapshot.records
            await self.carry_out(world, answer)
            change = push.Change()
            while not change.records:
                change.MergeFrom((await wait_soon(anext(messages))).change)

        assert change.records[0].deployment_id == answer.deployment_id

    async def test_a_dry_run_asks_the_agent_and_changes_nothing(self, world: World) -> None:
        await world.deploy(ONE)

        async def answer(question: push.Question) -> push.AnswerQuestionRequest:
            asked = question.preview_roll_back
            assert (asked.application_id, asked.deployed_before) == (world.application_id, True)
            return push.AnswerQuestionRequest(
                roll_back=control.RollBackPreview(commit_hash=asked.commit_hash, files=["a"])
            )

        request = pb.RollBackApplicationRequest(
            application_id=world.application_id, commit_hash=ONE[:7], dry_run=True
        )
        async with answering(world.agent, answer):
            found = await wait_soon(call(world.applications.RollBackApplication, request))

        assert (found.commit_hash, found.command_id) == (ONE, "")
        assert list(found.preview.files) == ["a"]
        assert not (await world.control()).HasField("pin")


async def test_an_agent_that_does_not_watch_is_refused_with_a_sentence(
    plane: ServedControlPlane,
) -> None:
    """As upstream's: it would never hear of the command."""
    agent = await plane.agent()
    world = World(plane=plane, agent=agent, application_id=await plane.application(agent))
    await world.deploy(ONE)
    failed = await world.deploy(TWO, model.DEPLOYMENT_FAILURE)
    service = world.applications

    for error in (
        await call_refused(
            service.RollBackApplication,
            pb.RollBackApplicationRequest(application_id=world.application_id),
        ),
        await call_refused(
            service.ReleaseHold, pb.ReleaseHoldRequest(application_id=world.application_id)
        ),
        await call_refused(
            plane.admin.deployments.RollBackDeployment,
            pb.RollBackDeploymentRequest(deployment_id=failed),
        ),
    ):
        assert error.status == "FAILED_PRECONDITION"
        assert "the piped 'agent' of the application 'hello' cannot" in error.message
    assert (await world.control()).hold.commit_hash == TWO
    assert not (await world.control()).HasField("pin")


def build_roll_back(world: World, answer: pb.RollBackApplicationResponse) -> model.Deployment:
    return world.plane.build.deployment(
        id=answer.deployment_id,
        application_id=world.application_id,
        piped_id=world.agent.id,
        project_id="default",
        trigger=model.DeploymentTrigger(
            commit=model.Commit(
                hash=answer.commit_hash, message="m", author="a", branch="main", created_at=1
            ),
            timestamp=1,
        ),
    )


class TestRetry:
    async def wait_for_person(self, world: World) -> str:
        """A deployment whose stage failed and that its piped keeps open."""
        deployment_id = await world.deploy(ONE, 0)
        await self.report(world, deployment_id, model.STAGE_RUNNING)
        await self.report(world, deployment_id, model.STAGE_FAILURE)
        await call(
            world.agent.service.ReportDeploymentStatusChanged,
            pipedservice.ReportDeploymentStatusChangedRequest(
                deployment_id=deployment_id,
                status=model.DEPLOYMENT_RUNNING,
                status_reason=f"s1 failed; {WAITS_FOR_DECISION}noon",
            ),
        )
        return deployment_id

    async def report(
        self, world: World, deployment_id: str, status: int, *, attempt: int = 0
    ) -> model.PipelineStage:
        await call(
            world.agent.service.ReportStageStatusChanged,
            pipedservice.ReportStageStatusChangedRequest(
                deployment_id=deployment_id,
                stage_id="s1",
                status=model.StageStatus.ValueType(status),
                visible=True,
                retried_count=attempt,
                completed_at=1000,
            ),
        )
        return (await world.plane.read_deployment(deployment_id)).stages[0]

    async def test_a_retry_is_a_command_with_the_number_of_its_attempt(self, world: World) -> None:
        deployment_id = await self.wait_for_person(world)
        request = pb.RetryStageRequest(deployment_id=deployment_id, comment="fixed it")
        async with world.watching() as messages:
            await wait_soon(anext(messages))
            answer = await call(world.plane.admin.deployments.RetryStage, request)
            change = push.Change()
            while not change.own_commands:
                change.MergeFrom((await wait_soon(anext(messages))).change)

        assert (answer.stage_id, answer.attempt) == ("s1", 1)
        (command,) = change.own_commands
        assert (command.type, command.attempt) == (push.Command.RETRY_STAGE, 1)
        assert (command.deployment_id, command.stage_id) == (deployment_id, "s1")
        record = await world.plane.stores.records.find("default", deployment_id)
        assert record is not None
        (action,) = record.message.actions
        assert (action.kind, action.by, action.comment, action.attempt) == (
            control.StageAction.RETRIED,
            "admin",
            "fixed it",
            1,
        )

    async def test_what_does_not_wait_is_not_retried(self, world: World) -> None:
        deployment_id = await world.deploy(ONE, 0)
        request = pb.RetryStageRequest(deployment_id=deployment_id)
        error = await call_refused(world.plane.admin.deployments.RetryStage, request)
        assert error.status == "FAILED_PRECONDITION"
        assert "waits to be retried" in error.message

        waiting = await self.wait_for_person(world)
        request = pb.RetryStageRequest(deployment_id=waiting, stage_id="other")
        error = await call_refused(world.plane.admin.deployments.RetryStage, request)
        assert "the stage 'other'" in error.message

    async def test_only_the_next_attempt_of_a_failed_stage_may_begin(self, world: World) -> None:
        deployment_id = await self.wait_for_person(world)

        skipped = await self.report(world, deployment_id, model.STAGE_RUNNING, attempt=2)
        assert (skipped.status, skipped.retried_count) == (model.STAGE_FAILURE, 0)
        begun = await self.report(world, deployment_id, model.STAGE_RUNNING, attempt=1)
        assert (begun.status, begun.retried_count) == (model.STAGE_RUNNING, 1)
        late = await self.report(world, deployment_id, model.STAGE_FAILURE, attempt=0)
        assert (late.status, late.retried_count) == (model.STAGE_RUNNING, 1)
        ended = await self.report(world, deployment_id, model.STAGE_SUCCESS, attempt=1)
        assert (ended.status, ended.retried_count) == (model.STAGE_SUCCESS, 1)
        again = await self.report(world, deployment_id, model.STAGE_RUNNING, attempt=2)
        assert again.status == model.STAGE_SUCCESS  # only a failure is retried

    async def test_a_roll_back_of_it_is_a_command_on_itself_without_a_pin(
        self, world: World
    ) -> None:
        deployment_id = await self.wait_for_person(world)
        request = pb.RollBackDeploymentRequest(deployment_id=deployment_id, reason="give up")

        answer = await call(world.plane.admin.deployments.RollBackDeployment, request)

        assert answer.deployment_id == deployment_id
        assert not (await world.control()).HasField("pin")
        waits = await call(
            world.plane.admin.deployments.ExplainWait,
            pb.ExplainWaitRequest(deployment_id=deployment_id),
        )
        assert pb.Wait.DECISION in [each.kind for each in waits.waits_for]
