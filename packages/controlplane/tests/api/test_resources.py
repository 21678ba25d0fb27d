# SPDX-License-Identifier: Apache-2.0
"""Opening a resource: its piped is asked while the caller waits, and nothing stays."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from pipecd_controlplane.auth.caller import ApiKeyCaller
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.asking import AgentQuestions
from pipecd_controlplane.usecases.in_process import InProcessPresence
from pipecd_controlplane.usecases.resources import ResourceQuestions
from pipecd_controlplane.usecases.roles import RIGHT_LABEL
from pipecd_model.errors import TimedOutError
from pipecd_test_support.answering_agent import Answer, answering
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.waiting import Soon
from pipecd_wire.model import apikey_pb2, application_pb2, common_pb2, project_pb2
from pipecd_wire.model import application_live_state_pb2 as model
from pipecd_wire.pipecd.api import access_pb2, api_pb2, api_pb2_grpc
from pipecd_wire.pipecd.details import details_pb2
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call, connect, stream

NEEDLE = "sesame-open-thyself"


def resource(
    resource_id: str, *, plugin: str = "kubernetes", target: str = "here"
) -> model.ResourceState:
    return model.ResourceState(
        id=resource_id,
        name=resource_id,
        resource_type="Pod",
        plugin_name=plugin,
        deploy_target=target,
        created_at=1,
        updated_at=1,
    )


async def report(agent: AgentClient, application_id: str, *resources: model.ResourceState) -> None:
    snapshot = model.ApplicationLiveStateSnapshot(
        application_id=application_id,
        piped_id=agent.id,
        project_id="default",
        kind=common_pb2.KUBERNETES,
        version=model.ApplicationLiveStateVersion(timestamp=5),
        application_live_state=model.ApplicationLiveState(resources=resources),
    )
    await call(
        agent.service.ReportApplicationLiveState,
        pipedservice.ReportApplicationLiveStateRequest(snapshot=snapshot),
    )


async def open_resource(
    plane: ServedControlPlane, application_id: str, resource_id: str = "pod", **fields: str | int
) -> api_pb2.OpenResourceResponse:
    service = api_pb2_grpc.ApplicationServiceStub(plane.admin.channel)
    request = api_pb2.OpenResourceRequest(
        application_id=application_id,
        resource_id=resource_id,
        **fields,  # type: ignore[arg-type]
    )
    answer: api_pb2.OpenResourceResponse = await call(service.OpenResource, request)
    return answer


async def show(question: pb.Question) -> pb.AnswerQuestionRequest:
    return pb.AnswerQuestionRequest(
        resource=details_pb2.ResourceDetails(
            manifest=f"{question.open_resource.resource_id}: {NEEDLE}", difference=""
        )
    )


@asynccontextmanager
async def asked(
    plane: ServedControlPlane, answer: Answer = show
) -> AsyncIterator[tuple[AgentClient, str, list[pb.Question]]]:
    """An application with the resource `pod` whose piped answers."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await report(agent, application_id, resource("pod"))
    async with answering(agent, answer) as questions:
        yield agent, application_id, questions


async def test_the_answer_of_the_piped_reaches_the_one_who_asked(
    plane: ServedControlPlane, soon: Soon
) -> None:
    async with asked(plane) as (_, application_id, questions):
        answer = await soon(open_resource(plane, application_id, container="c", log_lines=7))

    assert answer.details.manifest == f"pod: {NEEDLE}"
    assert answer.details.HasField("difference")
    assert answer.resource.resource_type == "Pod"
    (question,) = questions
    assert question.time.seconds > 0
    assert question.open_resource == pb.OpenResource(
        application_id=application_id,
        plugin_name="kubernetes",
        deploy_target="here",
        resource_id="pod",
        container="c",
        log_lines=7,
    )


async def test_several_ask_at_once_and_each_gets_its_own(
    plane: ServedControlPlane, soon: Soon
) -> None:
    everybody = asyncio.Barrier(5)

    async def answer_together(question: pb.Question) -> pb.AnswerQuestionRequest:
        await everybody.wait()
        return await show(question)

    async with asked(plane, answer_together) as (agent, application_id, _):
        names = [f"pod-{number}" for number in range(5)]
        await report(agent, application_id, *(resource(name) for name in names))
        answers = await soon(
            asyncio.gather(*(open_resource(plane, application_id, name) for name in names))
        )

    assert [each.details.manifest for each in answers] == [f"{name}: {NEEDLE}" for name in names]


async def test_nothing_of_an_answer_is_on_the_disk_or_in_the_log(
    plane: ServedControlPlane, soon: Soon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    async with asked(plane) as (_, application_id, _questions):
        answer = await soon(open_resource(plane, application_id))

    assert NEEDLE in answer.details.manifest
    files = [each for each in plane.running.data_dir.rglob("*") if each.is_file()]
    assert [each for each in files if NEEDLE.encode() in each.read_bytes()] == []
    assert files
    assert NEEDLE not in caplog.text
    opened = [each for each in caplog.records if "resource.opened" in each.getMessage()]
    assert len(opened) == 1


async def test_what_is_not_in_the_live_state_is_never_asked_for(
    plane: ServedControlPlane, soon: Soon
) -> None:
    """A viewer of one application must not read the objects of another."""
    async with asked(plane) as (agent, application_id, questions):
        other = await plane.application(agent, name="other")
        for foreign in (other, application_id):
            await report(agent, other, resource("of-other"))
            wanted = "pod" if foreign == other else "of-other"
            with pytest.raises(CallError, match="no resource") as caught:
                await soon(open_resource(plane, foreign, wanted))
            assert caught.value.status == "NOT_FOUND"
        for plugin, target in (("files", ""), ("", "there")):
            with pytest.raises(CallError, match="no resource"):
                await soon(
                    open_resource(plane, application_id, plugin_name=plugin, deploy_target=target)
                )

    assert questions == []


async def test_a_resource_of_several_targets_must_be_told_apart(
    plane: ServedControlPlane, soon: Soon
) -> None:
    async with asked(plane) as (agent, application_id, questions):
        await report(agent, application_id, resource("pod"), resource("pod", target="there"))
        with pytest.raises(CallError, match="kubernetes/here, kubernetes/there") as caught:
            await soon(open_resource(plane, application_id))
        assert caught.value.status == "INVALID_ARGUMENT"

        answer = await soon(open_resource(plane, application_id, deploy_target="there"))

    assert answer.resource.deploy_target == "there"
    assert [each.open_resource.deploy_target for each in questions] == ["there"]


@pytest.mark.parametrize(
    ("not_found", "status"), [(True, "NOT_FOUND"), (False, "FAILED_PRECONDITION")]
)
async def test_the_piped_may_say_why_it_does_not_answer(
    plane: ServedControlPlane, soon: Soon, not_found: bool, status: str
) -> None:
    async def refuse(_question: pb.Question) -> pb.AnswerQuestionRequest:
        why = pb.NoAnswer(
            sentence="the pod is gone " * 1000, hint="look again", not_found=not_found
        )
        return pb.AnswerQuestionRequest(no_answer=why)

    async with asked(plane, refuse) as (_, application_id, _questions):
        with pytest.raises(CallError, match="the pod is gone") as caught:
            await soon(open_resource(plane, application_id))

    assert caught.value.status == status
    assert len(caught.value.message) < 5000


@pytest.mark.parametrize("what", ["nothing", "too much"])
async def test_an_answer_that_cannot_be_shown_is_an_error(
    plane: ServedControlPlane, soon: Soon, what: str
) -> None:
    async def answer(_question: pb.Question) -> pb.AnswerQuestionRequest:
        large = details_pb2.ResourceDetails(manifest="x" * 7 * 1024 * 1024)
        return pb.AnswerQuestionRequest(resource=large if what == "too much" else None)

    async with asked(plane, answer) as (_, application_id, _questions):
        with pytest.raises(CallError, match="answered with") as caught:
            await soon(open_resource(plane, application_id))

    assert caught.value.status == "FAILED_PRECONDITION"


async def test_a_piped_that_is_away_is_not_waited_for(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await report(agent, application_id, resource("pod"))

    with pytest.raises(CallError, match="'agent' is not connected") as caught:
        await soon(open_resource(plane, application_id))

    assert caught.value.status == "FAILED_PRECONDITION"


async def test_a_piped_of_upstreams_cannot_show_resources(
    plane: ServedControlPlane, soon: Soon
) -> None:
    """It polls, and knows nothing of questions; an older one of ours watches, and knows as much."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await report(agent, application_id, resource("pod"))
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=b"up 1\n"))
    with pytest.raises(CallError, match="cannot show resources") as caught:
        await soon(open_resource(plane, application_id))
    assert caught.value.status == "FAILED_PRECONDITION"

    older = stream(agent.push.Watch, pb.WatchRequest(instance_id="i", data_folder_id="f"))
    await soon(anext(older))
    with pytest.raises(CallError, match="cannot show resources"):
        await soon(open_resource(plane, application_id))
    await older.aclose()


async def test_an_instance_that_waits_for_the_lease_is_not_asked(
    plane: ServedControlPlane, soon: Soon
) -> None:
    async with asked(plane) as (agent, application_id, questions):
        standby = pb.WatchRequest(
            instance_id="standby", data_folder_id="another", answers_questions=True
        )
        waiting = stream(agent.push.Watch, standby)
        first = await soon(anext(waiting))
        assert not first.snapshot.lease.held

        await soon(open_resource(plane, application_id))
        await waiting.aclose()

    assert len(questions) == 1


async def test_a_piped_that_disconnects_while_it_is_asked_ends_the_wait(
    plane: ServedControlPlane, soon: Soon
) -> None:
    came = asyncio.Event()

    async def note(_question: pb.Question) -> None:
        came.set()

    async with asyncio.TaskGroup() as tasks:
        async with asked(plane, note) as (_, application_id, _questions):
            asking = tasks.create_task(_refusal(open_resource(plane, application_id)))
            await soon(came.wait())
        assert await soon(asking) == "UNAVAILABLE"


async def test_a_piped_that_takes_too_long_is_given_up(
    plane: ServedControlPlane, soon: Soon
) -> None:
    async def ignore(_question: pb.Question) -> None:
        return None

    requester = ApiKeyCaller(project_id="default", key_id="k", name="k", may_write=True)
    async with asked(plane, ignore) as (_, application_id, _questions):
        resources = ResourceQuestions(
            plane.stores,
            AgentQuestions(
                stores=plane.stores,
                presence=InProcessPresence(plane.running.bus),
                questions=plane.running.questions,
                now=lambda: 5,
            ),
            seconds=0.01,
        )
        request = api_pb2.OpenResourceRequest(application_id=application_id, resource_id="pod")
        with pytest.raises(TimedOutError, match=r"did not answer within 0\.01s"):
            await soon(resources.open(requester, request))


async def test_a_key_that_only_reads_opens_nothing(plane: ServedControlPlane, soon: Soon) -> None:
    reader = await plane.user(await plane.new_key("reader", role=apikey_pb2.APIKey.READ_ONLY))
    async with asked(plane) as (_, application_id, questions):
        service = api_pb2_grpc.ApplicationServiceStub(reader.channel)
        request = api_pb2.OpenResourceRequest(application_id=application_id, resource_id="pod")
        with pytest.raises(CallError) as caught:
            await soon(call(service.OpenResource, request))

    assert caught.value.status == "PERMISSION_DENIED"
    assert questions == []


async def test_huge_names_are_refused(plane: ServedControlPlane, soon: Soon) -> None:
    async with asked(plane) as (_, application_id, questions):
        with pytest.raises(CallError, match="resource_id: 5000 characters") as caught:
            await soon(open_resource(plane, application_id, "x" * 5000))

    assert caught.value.status == "INVALID_ARGUMENT"
    assert questions == []


async def _refusal(opening: Awaitable[object]) -> str:
    """Returns the status that it fails with."""
    try:
        await opening
    except CallError as error:
        return error.status
    return "OK"


async def test_a_right_that_is_limited_to_labels_opens_only_what_has_them(
    plane: ServedControlPlane, soon: Soon
) -> None:
    policy = project_pb2.ProjectRBACPolicy(
        resources=[
            project_pb2.ProjectRBACResource(
                type=project_pb2.ProjectRBACResource.APPLICATION,
                labels={RIGHT_LABEL: "open-resources", "team": "shop"},
            )
        ],
        actions=[project_pb2.ProjectRBACPolicy.GET],
    )

    def edit(project: project_pb2.Project) -> None:
        project.rbac_roles.append(project_pb2.ProjectRBACRole(name="Shop", policies=[policy]))

    await plane.stores.projects.update("default", edit)
    identity = sessions.UserIdentity(subject="ada", via=access_pb2.Session.GITHUB, roles=("Shop",))
    token = await sessions.start(plane.stores, "default", identity, now=lambda: int(time.time()))
    cookie = [("cookie", f"token={token}")]
    agent = await plane.agent()
    channel = await plane.opened.enter_async_context(connect(plane.address))
    service = api_pb2_grpc.ApplicationServiceStub(channel)
    ids = {}
    for team in ("shop", "bank"):
        ids[team] = await plane.application(agent, name=team)
        await plane.stores.applications.update(
            "default", ids[team], partial(_set_label, key="team", value=team)
        )
        await report(agent, ids[team], resource("pod"))

    async with answering(agent, show) as questions:
        request = api_pb2.OpenResourceRequest(application_id=ids["shop"], resource_id="pod")
        opened = await soon(call(service.OpenResource, request, metadata=cookie))
        request.application_id = ids["bank"]
        with pytest.raises(CallError, match="there is no application") as refused:
            await soon(call(service.OpenResource, request, metadata=cookie))
        live = api_pb2.GetLiveStateRequest(application_id=ids["shop"])
        with pytest.raises(CallError) as denied:
            await soon(call(service.GetLiveState, live, metadata=cookie))

    assert NEEDLE in opened.details.manifest
    assert refused.value.status == "NOT_FOUND"
    assert denied.value.status == "PERMISSION_DENIED", "the right is for opening, and no other"
    assert [each.open_resource.application_id for each in questions] == [ids["shop"]]


def _set_label(application: application_pb2.Application, *, key: str, value: str) -> None:
    application.labels[key] = value
