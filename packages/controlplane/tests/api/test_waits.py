# SPDX-License-Identifier: Apache-2.0
"""What a deployment waits for is said, with what a person can do: over the real wire."""

from collections.abc import Sequence
from contextlib import aclosing

import pytest

from pipecd_controlplane.usecases import waits
from pipecd_model.queueing import SUPERSEDED_BY_KEY
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model import piped_pb2
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import call, stream

WATCH = push.WatchRequest(instance_id="instance", data_folder_id="folder")


async def ask(plane: ServedControlPlane, deployment_id: str) -> list[pb.Wait]:
    request = pb.ExplainWaitRequest(deployment_id=deployment_id)
    return list((await call(plane.admin.deployments.ExplainWait, request)).waits_for)


async def connect(agent: AgentClient) -> None:
    """Be online, as an agent that only polls."""
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=b"up 1\n"))


async def report_plugin(
    agent: AgentClient, state: push.PluginState.State.ValueType, reason: str = ""
) -> None:
    plugin = push.PluginState(name="wait", state=state, reason=reason)
    await call(agent.push.ReportPlugins, push.ReportPluginsRequest(plugins=[plugin]))


async def test_a_queued_one_waits_for_the_one_before_and_for_what_that_one_waits(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    await connect(agent)
    application_id = await plane.application(agent)
    approval = build.stage(
        "s1",
        name="WAIT_APPROVAL",
        status=model.STAGE_RUNNING,
        available_operation=model.MANUAL_OPERATION_APPROVE,
        authorized_operators=["ada", "bob"],
    )
    await plane.deployment(agent, application_id, "first", approval)
    for name in ("second", "third"):
        await plane.deployment(agent, application_id, name)

    one, other = await ask(plane, "third")

    assert one.kind == pb.Wait.OTHER_DEPLOYMENT
    assert (one.deployment_id, one.other_deployment_id) == ("third", "first")
    assert one.sentence == (
        "queued behind the deployment first of the same application,"
        " which is RUNNING at the stage WAIT_APPROVAL, and 1 more"
    )
    assert "cancel that one" in one.hint
    assert other.kind == pb.Wait.APPROVAL
    assert (other.deployment_id, other.stage_id) == ("first", "s1")
    assert other.sentence == "the stage WAIT_APPROVAL waits for an approval by ada or bob"

    [approval_wait] = await ask(plane, "first")
    assert approval_wait == other


async def test_another_application_does_not_stand_in_the_way(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    await connect(agent)
    await plane.deployment(agent, await plane.application(agent), "one", build.stage("s1"))
    await plane.deployment(agent, await plane.application(agent, name="two"), "two")

    [wait] = await ask(plane, "two")

    assert wait.kind == pb.Wait.PLANNING


async def test_a_piped_that_is_away_is_named(plane: ServedControlPlane) -> None:
    agent = await plane.agent(name="edge")
    await plane.deployment(agent, await plane.application(agent), "d1")

    [wait] = await ask(plane, "d1")

    assert (wait.kind, wait.piped_id) == (pb.Wait.PIPED, agent.id)
    assert wait.sentence == "its piped 'edge' is not connected"
    assert wait.hint.startswith("start it")

    await call(plane.admin.api.DisablePiped, api.DisablePipedRequest(piped_id=agent.id))

    assert [each.sentence for each in await ask(plane, "d1")] == ["its piped 'edge' is disabled"]


async def test_a_plugin_that_is_not_ready_is_named_with_its_reason(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    await connect(agent)
    await plane.deployment(agent, await plane.application(agent), "d1")
    await report_plugin(agent, push.PluginState.FAILED, "exited with code 7")

    [wait] = await ask(plane, "d1")

    assert (wait.kind, wait.plugin_name) == (pb.Wait.PLUGIN, "wait")
    assert wait.sentence == "the plugin 'wait' of its piped is failed: exited with code 7"

    await report_plugin(agent, push.PluginState.READY)

    assert [each.kind for each in await ask(plane, "d1")] == [pb.Wait.PLANNING]


async def test_a_running_stage_waits_for_its_own_plugin_only(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    await connect(agent)
    for name, plugin in (("mine", "wait"), ("theirs", "other")):
        stage = build.stage("s1", status=model.STAGE_RUNNING, metadata={"pipecd/plugin": plugin})
        application_id = await plane.application(agent, name=name)
        await plane.deployment(agent, application_id, name, stage)
    await report_plugin(agent, push.PluginState.STARTING)

    assert [each.kind for each in await ask(plane, "mine")] == [pb.Wait.PLUGIN]
    assert await ask(plane, "theirs") == []


async def test_what_is_completed_waits_for_nothing(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await plane.deployment(agent, await plane.application(agent), "d1")
    await call(
        agent.service.ReportDeploymentCompleted,
        pipedservice.ReportDeploymentCompletedRequest(
            deployment_id="d1", status=model.DEPLOYMENT_CANCELLED, completed_at=5
        ),
    )

    assert await ask(plane, "d1") == []


def make_around(
    *open_ones: model.Deployment, queued: Sequence[QueuedDeployment], online: bool = True
) -> waits.Surroundings:
    return waits.Surroundings(
        piped=piped_pb2.Piped(id="piped", name="p"),
        online=online,
        plugins={"wait": push.PluginState(name="wait", state=push.PluginState.READY)},
        open=open_ones,
        queued={each.deployment_id: each for each in queued},
    )


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (QueuedDeployment.SLOT, pb.Wait.SLOT),
        (QueuedDeployment.LOCK, pb.Wait.LOCK),
        (QueuedDeployment.RULE, pb.Wait.RULE),
        (QueuedDeployment.CHAIN, pb.Wait.CHAIN),
        (QueuedDeployment.CONTROL_PLANE, pb.Wait.PIPED),
    ],
)
def test_what_its_piped_says_is_said(
    build: MessageBuilder,
    cause: QueuedDeployment.Cause.ValueType,
    kind: pb.Wait.Kind.ValueType,
) -> None:
    waiting = build.deployment(id="w", application_id="mine")
    queued = QueuedDeployment(
        deployment_id="w", cause=cause, sentence="so it is", hint="do this", position=3, lock="db"
    )
    queued.until.seconds = 12

    [wait] = waits.find_waits(waiting, make_around(waiting, queued=[queued]))

    assert (wait.kind, wait.sentence, wait.hint) == (kind, "so it is", "do this")
    assert (wait.position, wait.lock, wait.until.seconds) == (3, "db", 12)


def test_a_piped_that_is_not_connected_is_not_believed(build: MessageBuilder) -> None:
    waiting = build.deployment(id="w", application_id="mine")
    queued = QueuedDeployment(deployment_id="w", cause=QueuedDeployment.SLOT, sentence="full")

    found = waits.find_waits(waiting, make_around(waiting, queued=[queued], online=False))

    assert ["not connected" in each.sentence for each in found] == [True]


def test_who_holds_the_lock_is_said_with_what_that_one_waits_for(build: MessageBuilder) -> None:
    waiting = build.deployment(id="w", application_id="mine")
    approval = build.stage(
        "s1",
        name="WAIT_APPROVAL",
        status=model.STAGE_RUNNING,
        available_operation=model.MANUAL_OPERATION_APPROVE,
    )
    holder = build.deployment(id="h", application_id="other", status=model.DEPLOYMENT_RUNNING)
    holder.stages.append(approval)
    queued = QueuedDeployment(
        deployment_id="w", cause=QueuedDeployment.LOCK, other_deployment_id="h", lock="db"
    )

    found = waits.find_waits(waiting, make_around(waiting, holder, queued=[queued]))

    assert [each.kind for each in found] == [pb.Wait.LOCK, pb.Wait.APPROVAL]
    assert [each.deployment_id for each in found] == ["w", "h"]


def test_the_roll_back_that_goes_first_is_the_one_that_its_piped_names(
    build: MessageBuilder,
) -> None:
    waiting = build.deployment(id="w", application_id="mine")
    back = build.deployment(id="back", application_id="mine")
    back.trigger.commit.created_at = waiting.trigger.commit.created_at + 100
    queued = QueuedDeployment(
        deployment_id="w", cause=QueuedDeployment.OTHER_DEPLOYMENT, other_deployment_id="back"
    )

    found = waits.find_waits(waiting, make_around(waiting, back, queued=[queued]))

    assert found[0].kind == pb.Wait.OTHER_DEPLOYMENT
    assert found[0].other_deployment_id == "back"
    assert found[0].position == 1


async def test_the_queue_of_a_project_names_those_that_are_still_open(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "d1")
    entries = [
        QueuedDeployment(deployment_id=each, cause=QueuedDeployment.SLOT, sentence="full")
        for each in ("gone", "d1")
    ]
    await call(agent.push.ReportQueue, push.ReportQueueRequest(queued=entries))

    items = (await call(plane.admin.deployments.ListQueue, pb.ListQueueRequest())).items

    assert [each.queued.deployment_id for each in items] == ["d1"]
    assert items[0].application_id == application_id
    assert items[0].queued.sentence == "full"
    nobody = pb.ListQueueRequest(piped_id="another")
    assert not (await call(plane.admin.deployments.ListQueue, nobody)).items


async def test_which_deployment_took_the_place_is_kept(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await plane.deployment(agent, await plane.application(agent), "d1")
    note = pipedservice.SaveDeploymentSharedMetadataRequest(
        deployment_id="d1", metadata={SUPERSEDED_BY_KEY: "d2"}
    )
    for _ in range(2):  # reports are repeated
        await call(agent.service.SaveDeploymentSharedMetadata, note)

    record = await plane.stores.records.find("default", "d1")

    assert record is not None
    assert record.message.superseded_by == "d2"


@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_piped_that_says_goodbye_is_offline_at_once(
    plane: ServedControlPlane, soon: Soon, goodbye: bool
) -> None:
    """Without it, its last report makes it look alive for two minutes."""
    agent = await plane.agent()

    async def read_status() -> piped_pb2.Piped.ConnectionStatus.ValueType:
        answer = await call(plane.admin.pipeds.ListPipeds, pb.ListPipedsRequest())
        return answer.pipeds[0].piped.status

    await connect(agent)
    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        epoch = (await soon(anext(messages))).snapshot.lease.epoch
        assert await read_status() == piped_pb2.Piped.ONLINE
    if goodbye:
        request = push.ReleaseLeaseRequest(instance_id="instance", epoch=epoch)
        await call(agent.push.ReleaseLease, request)

    expected = piped_pb2.Piped.OFFLINE if goodbye else piped_pb2.Piped.ONLINE
    assert await read_status() == expected


async def test_a_standby_that_says_goodbye_leaves_the_holder_online(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    await connect(agent)
    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        epoch = (await soon(anext(messages))).snapshot.lease.epoch
        await call(
            agent.push.ReleaseLease, push.ReleaseLeaseRequest(instance_id="other", epoch=epoch)
        )
    answer = await call(plane.admin.pipeds.ListPipeds, pb.ListPipedsRequest())

    assert answer.pipeds[0].piped.status == piped_pb2.Piped.ONLINE
