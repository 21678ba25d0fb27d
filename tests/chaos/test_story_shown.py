# SPDX-License-Identifier: Apache-2.0
"""What waits and does not say why is found, and what a person asks for and is refused.

The control plane of these tests is made up: it says what a real one must not.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from chaos.controlled import APPLICATIONS
from chaos.observe import Observer
from chaos.promises import Violation
from chaos.schedule import Round, StoryPlan
from chaos.site import Site
from chaos.spread import SpreadStub
from chaos.stories import BEHIND, REJECTS, LockStory, PinStory
from chaos.story import Story
from chaos.story_rule import RULE, RuleStory
from pipecd_model.holds import WAITING
from pipecd_model.queueing import QueueMode, describe_rejection
from pipecd_wire.apiservice import service_pb2
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import Application, ApplicationSyncState
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import DeploymentServiceStub
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.rpc import CallError, Endpoints, admit_all, connect, rpc, serving

S = TypeVar("S", bound=Story)


def promises(found: Iterable[Violation]) -> set[str]:
    return {each.promise for each in found}


class MadeUp:
    """What a control plane answers about queue and applications, and how it refuses a cancel."""

    def __init__(self) -> None:
        self.queued: list[QueuedDeployment] = []
        self.deployments: list[Deployment] = []
        self.waits = ""
        """What the sync state of every application says of a commit that waits."""
        self.refusals: list[str] = []
        """One for each call."""

    @rpc("ListQueue")
    async def list_queue(
        self, _caller: object, _request: api_pb2.ListQueueRequest
    ) -> api_pb2.ListQueueResponse:
        items = [api_pb2.ListQueueResponse.Item(queued=each) for each in self.queued]
        return api_pb2.ListQueueResponse(items=items)

    @rpc("CancelDeployment")
    async def cancel_deployment(
        self, _caller: object, _request: api_pb2.CancelDeploymentRequest
    ) -> api_pb2.CancelDeploymentResponse:
        if self.refusals:
            refusal = self.refusals.pop(0)
            if refusal == "a bug":
                raise RuntimeError(refusal)
            raise CallError(refusal, "no")
        return api_pb2.CancelDeploymentResponse()


class MadeUpApi:
    """The same for the API that upstream has, too."""

    def __init__(self, answers: MadeUp) -> None:
        self._answers = answers

    @rpc("GetApplication")
    async def get_application(
        self, _caller: object, _request: service_pb2.GetApplicationRequest
    ) -> service_pb2.GetApplicationResponse:
        reason = f"{WAITING}{self._answers.waits}\nmore" if self._answers.waits else ""
        state = ApplicationSyncState(reason=reason)
        return service_pb2.GetApplicationResponse(application=Application(sync_state=state))

    @rpc("ListDeployments")
    async def list_deployments(
        self, _caller: object, _request: service_pb2.ListDeploymentsRequest
    ) -> service_pb2.ListDeploymentsResponse:
        return service_pb2.ListDeploymentsResponse(deployments=self._answers.deployments)


class Asking(Story):
    """A person cancels a deployment."""

    async def tell(self) -> None:
        request = api_pb2.CancelDeploymentRequest(deployment_id="d")
        method = self._site.deployments.CancelDeployment
        await self.ask(method, request, "CancelDeployment", "d")


@asynccontextmanager
async def telling(
    kind: type[S], answers: MadeUp, root: Path, *, is_right: bool
) -> AsyncIterator[tuple[S, Observer, Site]]:
    """A story of a site with a repository, whose control plane says what a test wants.

    What is wrong stays wrong: it is asked for once.
    """
    endpoints = Endpoints(admit=admit_all)
    for service, api in (
        (api_pb2.DESCRIPTOR.services_by_name["DeploymentService"], answers),
        (service_pb2.DESCRIPTOR.services_by_name["APIService"], MadeUpApi(answers)),
    ):
        served = {"ListQueue", "CancelDeployment", "GetApplication", "ListDeployments"}
        endpoints.add(service, api, unimplemented=set(service.methods_by_name) - served)
    site = Site(root, {})
    site.prepare()
    observer = Observer(site, "", Round(number=1), expected=0)
    async with (
        serving(endpoints, "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        kinds = (DeploymentServiceStub, APIServiceStub)
        site.deployments, site.api = (SpreadStub(each, [channel], [""]) for each in kinds)
        site.application_ids = dict.fromkeys(APPLICATIONS, "id")
        story = kind(site, observer, StoryPlan(name="made up", variant="once"), "round 1")
        if not is_right:
            story.shown_seconds = 0.0
        yield story, observer, site


def queued(id: str = "d", cause: int = BEHIND[0], sentence: str = "x is first") -> QueuedDeployment:
    kind = QueuedDeployment.Cause.ValueType(cause)
    return QueuedDeployment(deployment_id=id, cause=kind, sentence=sentence)


@pytest.mark.parametrize(
    ("in_queue", "status", "is_right"),
    [
        ([queued("x"), queued()], pb.DEPLOYMENT_PENDING, True),
        ([queued(cause=BEHIND[1])], pb.DEPLOYMENT_PENDING, True),
        ([], pb.DEPLOYMENT_RUNNING, True),
        ([], pb.DEPLOYMENT_PENDING, False),
        ([queued("x")], pb.DEPLOYMENT_PENDING, False),
        ([queued(cause=QueuedDeployment.SLOT)], pb.DEPLOYMENT_PENDING, False),
        ([queued(sentence="")], pb.DEPLOYMENT_PENDING, False),
    ],
    ids=["behind", "lock", "begun", "not there", "another one", "another cause", "no sentence"],
)
async def test_a_deployment_that_waits_and_does_not_say_why_is_found(
    tmp_path: Path,
    in_queue: list[QueuedDeployment],
    status: pb.DeploymentStatus.ValueType,
    is_right: bool,
) -> None:
    answers = MadeUp()
    answers.queued = in_queue
    made = Deployment(id="d", application_name="locked-queue", status=status)
    async with telling(LockStory, answers, tmp_path, is_right=is_right) as (story, observer, _):
        observer.latest["d"] = made
        await story.explained(made, *BEHIND)
    assert promises(story.found) == (set() if is_right else {"why"})


@pytest.mark.parametrize("is_right", [True, False])
async def test_a_rule_that_does_not_show_is_found(tmp_path: Path, is_right: bool) -> None:
    answers = MadeUp()
    answers.deployments = [Deployment(id="d", application_name="ruled")]
    answers.queued = [queued(cause=RULE if is_right else BEHIND[0])]
    async with telling(RuleStory, answers, tmp_path, is_right=is_right) as (story, _, _):
        await story.until(story.waits_visibly, "why", "ruled does not say what it waits for")
    assert promises(story.found) == (set() if is_right else {"why"})


@pytest.mark.parametrize("waits", ["the commit abcdefg waits: pinned by admin", ""])
async def test_a_pin_that_does_not_say_which_commit_waits_is_found(
    tmp_path: Path, waits: str
) -> None:
    answers = MadeUp()
    answers.waits = waits
    async with telling(PinStory, answers, tmp_path, is_right=bool(waits)) as (story, _, _):
        await story.until(story.says_why, "why", "pinned does not say what its newest waits for")
    assert promises(story.found) == (set() if waits else {"why"})


@pytest.mark.parametrize(
    ("waits", "status", "is_right"),
    [
        ("{newest} {open}", pb.DEPLOYMENT_RUNNING, True),
        ("{later} {open}", pb.DEPLOYMENT_PENDING, True),
        ("", pb.DEPLOYMENT_SUCCESS, True),
        ("", pb.DEPLOYMENT_RUNNING, False),
        ("{older} {open}", pb.DEPLOYMENT_RUNNING, False),
        ("{newest} another", pb.DEPLOYMENT_RUNNING, False),
    ],
    ids=["says it", "a later head", "nothing is open", "silent", "another commit", "for another"],
)
async def test_a_rejected_commit_that_waits_and_does_not_say_so_is_found(
    tmp_path: Path, waits: str, status: pb.DeploymentStatus.ValueType, is_right: bool
) -> None:
    answers = MadeUp()
    async with telling(LockStory, answers, tmp_path, is_right=is_right) as (story, _, site):
        older, newest = story.publish(REJECTS), story.publish(REJECTS)
        later = site.publish({"beside": "another application's"}, "round 1")
        made = Deployment(id="open", application_name=REJECTS, status=status)
        made.trigger.commit.hash = older
        answers.deployments = [made]
        if waits:
            named = waits.format(older=older, newest=newest, later=later, open="open")
            commit, deployment_id = named.split()
            said = describe_rejection(QueueMode.REJECT, commit, [deployment_id])
            assert said is not None
            answers.waits = said
        await story.rejection_explained(newest)
    assert promises(story.found) == (set() if is_right else {"why"})


@pytest.mark.parametrize(
    ("refusals", "is_right"),
    [
        ([], True),
        (["UNAVAILABLE", "UNAVAILABLE"], True),
        (["UNAVAILABLE", "FAILED_PRECONDITION"], True),
        (["FAILED_PRECONDITION"], False),
        (["PERMISSION_DENIED"], False),
        (["UNAVAILABLE", "INVALID_ARGUMENT"], False),
        (["INTERNAL"], True),
        (["a bug"], False),
    ],
    ids=[
        "done",
        "dead",
        "done when the answer got lost",
        "refused",
        "no right",
        "refused later",
        "cut off",
        "the server failed of itself",
    ],
)
async def test_what_a_person_may_ask_for_and_is_refused_is_found(
    tmp_path: Path, refusals: list[str], is_right: bool
) -> None:
    answers = MadeUp()
    answers.refusals = list(refusals)
    async with telling(Asking, answers, tmp_path, is_right=is_right) as (story, observer, _):
        await story.run()
    assert promises(story.found) == (set() if is_right else {"asked"})
    assert observer.answered == ([("CancelDeployment", "d")] if is_right else [])
