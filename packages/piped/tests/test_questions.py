# SPDX-License-Identifier: Apache-2.0
"""Questions of the control plane: each is answered, whatever happens on the way to the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from google.protobuf.duration_pb2 import Duration

from pipecd_model.errors import NotFoundError, StateError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.questions import AT_ONCE, QuestionRunner
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import DeploymentDiff, RollBackPreview
from pipecd_wire.pipecd.details.details_pb2 import ResourceDetails
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.rpc import Endpoints, StatusError, admit_all, connect, rpc, serving

LIMIT_SECONDS = 20
SERVICE = push.DESCRIPTOR.services_by_name["PushService"]

OpenOne = Callable[[push.OpenResource], Awaitable[ResourceDetails]]


class Asker:
    """The part of the control plane that waits for answers."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[push.AnswerQuestionRequest] = asyncio.Queue()
        self.refuses = False

    @rpc("AnswerQuestion")
    async def answer(
        self, _: object, request: push.AnswerQuestionRequest
    ) -> push.AnswerQuestionResponse:
        self.answers.put_nowait(request)
        if self.refuses:
            raise StatusError("NOT_FOUND", "nobody waits")
        return push.AnswerQuestionResponse()

    async def get(self) -> push.AnswerQuestionRequest:
        return await asyncio.wait_for(self.answers.get(), LIMIT_SECONDS)


@asynccontextmanager
async def running(open_one: OpenOne) -> AsyncIterator[tuple[QuestionRunner, Asker]]:
    asker = Asker()
    endpoints = Endpoints(admit=admit_all)
    endpoints.add(SERVICE, asker, unimplemented=set(SERVICE.methods_by_name) - {"AnswerQuestion"})
    async with (
        serving(endpoints, "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
        asyncio.TaskGroup() as tasks,
    ):
        runner = QuestionRunner(
            ControlPlane(channel),
            open_one,
            preview,
            compare,
            lambda text: text.replace("sesame", "***"),
        )
        working = tasks.create_task(runner.run())
        yield runner, asker
        working.cancel()


async def preview(asked: push.PreviewRollBack) -> RollBackPreview:
    return RollBackPreview(commit_hash=asked.commit_hash, files=["a"])


async def compare(asked: push.CompareDeployment) -> DeploymentDiff:
    return DeploymentDiff(commit_hash=asked.deployment.id, files=["b"])


async def test_what_a_deployment_changes_is_answered() -> None:
    async def open_nothing(_asked: push.OpenResource) -> ResourceDetails:
        raise AssertionError

    async with running(open_nothing) as (runner, asker):
        asked = push.CompareDeployment(deployment=Deployment(id="d1"))
        runner.take(push.Question(id="q", compare_deployment=asked))
        answer = await asker.get()

    assert answer.deployment == DeploymentDiff(commit_hash="d1", files=["b"])


async def test_what_a_roll_back_would_change_is_answered() -> None:
    async def open_nothing(_asked: push.OpenResource) -> ResourceDetails:
        raise AssertionError

    async with running(open_nothing) as (runner, asker):
        asked = push.PreviewRollBack(application_id="web", commit_hash="abc")
        runner.take(push.Question(id="q", preview_roll_back=asked))
        answer = await asker.get()

    assert answer.question_id == "q"
    assert answer.roll_back == RollBackPreview(commit_hash="abc", files=["a"])


def question(resource_id: str = "pod", *, seconds: int = 30) -> push.Question:
    return push.Question(
        id=f"q-{resource_id}",
        time=Duration(seconds=seconds),
        open_resource=push.OpenResource(resource_id=resource_id),
    )


async def show(wanted: push.OpenResource) -> ResourceDetails:
    return ResourceDetails(manifest=f"of {wanted.resource_id}")


async def test_a_question_is_answered_under_its_id() -> None:
    async with running(show) as (runner, asker):
        runner.take(question("a"))
        runner.take(question("b"))
        answers = {each.question_id: each for each in (await asker.get(), await asker.get())}

    assert {key: each.resource.manifest for key, each in answers.items()} == {
        "q-a": "of a",
        "q-b": "of b",
    }


@pytest.mark.parametrize("gone", [True, False])
async def test_what_fails_is_said_with_its_hint_and_without_secrets(gone: bool) -> None:
    async def fail(_wanted: push.OpenResource) -> ResourceDetails:
        kind = NotFoundError if gone else StateError
        raise kind("no door for sesame", hint="say sesame")

    async with running(fail) as (runner, asker):
        runner.take(question())
        answer = await asker.get()

    assert answer.no_answer == push.NoAnswer(
        sentence="no door for ***", hint="say ***", not_found=gone
    )


async def test_a_bug_and_an_unknown_question_are_answered_too() -> None:
    async def fall_over(_wanted: push.OpenResource) -> ResourceDetails:
        raise ZeroDivisionError

    async with running(fall_over) as (runner, asker):
        runner.take(question())
        bug = await asker.get()
        runner.take(push.Question(id="q-new", time=Duration(seconds=9)))
        unknown = await asker.get()

    assert "bug" in bug.no_answer.sentence
    assert "does not know" in unknown.no_answer.sentence


async def test_what_takes_too_long_is_given_up_and_the_next_has_its_turn() -> None:
    async def hang(wanted: push.OpenResource) -> ResourceDetails:
        if wanted.resource_id != "quick":
            await asyncio.get_running_loop().create_future()
        return await show(wanted)

    async with running(hang) as (runner, asker):
        for number in range(AT_ONCE):
            runner.take(question(f"slow-{number}", seconds=1))
        runner.take(question("quick"))
        answers = [await asker.get() for _ in range(AT_ONCE + 1)]

    late = [each for each in answers if each.WhichOneof("answer") == "no_answer"]
    assert len(late) == AT_ONCE
    assert all("in time" in each.no_answer.sentence for each in late)
    assert answers[-1].resource.manifest == "of quick"


async def test_an_answer_that_nobody_wants_any_more_stops_nothing() -> None:
    async with running(show) as (runner, asker):
        asker.refuses = True
        runner.take(question("a"))
        await asker.get()
        asker.refuses = False
        runner.take(question("b"))
        assert (await asker.get()).question_id == "q-b"
