# SPDX-License-Identifier: Apache-2.0
"""What a deployment changes: which two commits its piped is asked to compare, and what it says."""

from typing import Any

import pytest

from pipecd_test_support.answering_agent import answering
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_test_support.waiting import wait_soon
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import DeploymentDiff, RollBackPreview
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import call

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


async def answer(question: push.Question) -> push.AnswerQuestionRequest:
    asked = question.compare_deployment
    diff = DeploymentDiff(
        running_commit_hash=asked.running_commit_hash,
        commit_hash=asked.deployment.trigger.commit.hash,
        files=["web/index.html"],
    )
    return push.AnswerQuestionRequest(deployment=diff)


class World:
    """An application of an agent, and its deployments."""

    def __init__(self, plane: ServedControlPlane, agent: AgentClient, application_id: str) -> None:
        self.plane = plane
        self.agent = agent
        self.application_id = application_id

    async def deploy(
        self, deployment_id: str, commit: str, *, running: str = "", status: int = 0, **more: Any
    ) -> None:
        """A deployment of a commit; without a status it is not planned yet."""
        trigger = model.DeploymentTrigger(
            commit=model.Commit(hash=commit, message="m", author="a", branch="main", created_at=1),
            timestamp=1,
        )
        await self.plane.deployment(
            self.agent, self.application_id, deployment_id, trigger=trigger, **more
        )
        if not status:
            return
        planned = self.plane.build.planned(deployment_id, self.plane.build.stage("s1"))
        planned.running_commit_hash = running
        await call(self.agent.service.ReportDeploymentPlanned, planned)
        await call(
            self.agent.service.ReportDeploymentCompleted,
            pipedservice.ReportDeploymentCompletedRequest(
                deployment_id=deployment_id,
                status=model.DeploymentStatus.ValueType(status),
                completed_at=1000,
            ),
        )

    async def ask(self, deployment_id: str) -> pb.GetDeploymentDiffResponse:
        request = pb.GetDeploymentDiffRequest(deployment_id=deployment_id)
        return await wait_soon(call(self.plane.admin.deployments.GetDeploymentDiff, request))


@pytest.fixture
async def world(plane: ServedControlPlane) -> World:
    agent = await plane.agent()
    return World(plane, agent, await plane.application(agent))


async def test_it_is_compared_with_what_ran_when_it_was_planned(world: World) -> None:
    """Not with a deployment that failed in between."""
    await world.deploy("d1", ONE, status=model.DEPLOYMENT_SUCCESS)
    await world.deploy("d2", TWO, running=ONE, status=model.DEPLOYMENT_FAILURE)
    await world.deploy("d3", THREE, running=ONE, status=model.DEPLOYMENT_SUCCESS)
    async with answering(world.agent, answer) as questions:
        found = await world.ask("d3")

    assert found.diff.running_commit_hash == ONE
    assert found.diff.commit_hash == THREE
    assert found.running_deployment_id == "d1"
    assert list(found.diff.files) == ["web/index.html"]
    assert questions[0].compare_deployment.deployment.id == "d3"


async def test_one_that_is_not_planned_is_compared_with_the_last_success(world: World) -> None:
    await world.deploy("d1", ONE, status=model.DEPLOYMENT_SUCCESS)
    await world.deploy("d2", TWO, running=ONE, status=model.DEPLOYMENT_FAILURE)
    await world.deploy("d3", THREE)
    async with answering(world.agent, answer):
        found = await world.ask("d3")

    assert (found.diff.running_commit_hash, found.running_deployment_id) == (ONE, "d1")


async def test_the_first_is_compared_with_nothing(world: World) -> None:
    await world.deploy("d1", ONE, status=model.DEPLOYMENT_SUCCESS)
    async with answering(world.agent, answer):
        found = await world.ask("d1")

    assert (found.diff.running_commit_hash, found.running_deployment_id) == ("", "")


async def test_the_piped_that_has_the_application_now_is_asked(world: World) -> None:
    """The one that deployed it may have left long ago."""
    await world.deploy("d1", ONE, status=model.DEPLOYMENT_SUCCESS)
    other = await world.plane.agent(name="other")

    def move(application: Application) -> None:
        application.piped_id = other.id

    await world.plane.stores.applications.update("default", world.application_id, move)
    async with answering(other, answer) as questions:
        await world.ask("d1")

    assert len(questions) == 1


async def test_an_offline_piped_is_named_at_once(world: World) -> None:
    await world.deploy("d1", ONE, status=model.DEPLOYMENT_SUCCESS)
    async with answering(world.agent, answer):
        pass
    request = pb.GetDeploymentDiffRequest(deployment_id="d1")

    error = await wait_soon(call_refused(world.plane.admin.deployments.GetDeploymentDiff, request))

    assert error.status in {"FAILED_PRECONDITION", "UNAVAILABLE"}
    assert "the piped 'agent'" in error.message
    assert "say what a deployment changes" in error.message


async def test_an_answer_of_another_kind_is_no_answer(world: World) -> None:
    async def mistake(_question: push.Question) -> push.AnswerQuestionRequest:
        return push.AnswerQuestionRequest(roll_back=RollBackPreview(commit_hash=ONE))

    await world.deploy("d1", ONE, status=model.DEPLOYMENT_SUCCESS)
    request = pb.GetDeploymentDiffRequest(deployment_id="d1")
    async with answering(world.agent, mistake):
        error = await wait_soon(
            call_refused(world.plane.admin.deployments.GetDeploymentDiff, request)
        )

    assert "cannot read" in error.message
