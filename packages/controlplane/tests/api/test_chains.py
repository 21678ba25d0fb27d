# SPDX-License-Identifier: Apache-2.0
"""Deployment chains over the wire: made whole, moved on at once, never stalled."""

from contextlib import aclosing

import pytest

from pipecd_controlplane.store.chains import ChainFilter
from pipecd_controlplane.usecases import chains
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.waiting import Soon
from pipecd_wire.model import application_pb2, command_pb2, common_pb2, deployment_pb2
from pipecd_wire.model import deployment_chain_pb2 as model
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import CallError, call, stream

Matcher = pb.CreateDeploymentChainRequest.ApplicationMatcher


async def chain_of(
    plane: ServedControlPlane, agent: AgentClient, first: str, *matchers: Matcher
) -> model.DeploymentChain:
    """Create a chain that begins with the deployment `d0`; returns the chain."""
    await call(
        agent.service.CreateDeploymentChain,
        pb.CreateDeploymentChainRequest(
            first_deployment=plane.build.deployment(
                id="d0", application_id=first, piped_id=agent.id, project_id="default"
            ),
            matchers=matchers,
        ),
    )
    return await chain_now(plane)


async def chain_now(plane: ServedControlPlane) -> model.DeploymentChain:
    page = await plane.stores.chains.page("default", ChainFilter(), limit=0, cursor="")
    assert len(page.items) == 1
    chain: model.DeploymentChain = page.items[0]
    return chain


async def end(
    agent: AgentClient, deployment_id: str, status: deployment_pb2.DeploymentStatus.ValueType
) -> None:
    await call(
        agent.service.ReportDeploymentCompleted,
        pb.ReportDeploymentCompletedRequest(
            deployment_id=deployment_id, status=status, completed_at=5
        ),
    )


async def asked(
    agent: AgentClient, chain: model.DeploymentChain, deployment_id: str, index: int
) -> pb.InChainDeploymentPlannableResponse:
    return await call(
        agent.service.InChainDeploymentPlannable,
        pb.InChainDeploymentPlannableRequest(
            deployment_id=deployment_id,
            deployment_chain_id=chain.id,
            deployment_chain_block_index=index,
        ),
    )


def names(chain: model.DeploymentChain) -> list[list[str]]:
    return [[node.application_ref.application_name for node in b.nodes] for b in chain.blocks]


def states(chain: model.DeploymentChain) -> list[str]:
    prefix = "DEPLOYMENT_BLOCK_"
    return [model.ChainBlockStatus.Name(b.status).removeprefix(prefix) for b in chain.blocks]


SUCCESS, FAILURE = deployment_pb2.DEPLOYMENT_SUCCESS, deployment_pb2.DEPLOYMENT_FAILURE
CANCELLED = deployment_pb2.DEPLOYMENT_CANCELLED


async def test_a_chain_asks_the_piped_of_each_further_application(
    plane: ServedControlPlane,
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    first = await plane.application(agent, name="first")
    second = await plane.application(other, name="second")

    chain = await chain_of(plane, agent, first, Matcher(name="second"))

    assert names(chain) == [["first"], ["second"]]
    kept = await plane.read_deployment("d0")
    assert (kept.deployment_chain_id, kept.deployment_chain_block_index) == (chain.id, 0)
    listed = await call(other.service.ListUnhandledCommands, pb.ListUnhandledCommandsRequest())
    (command,) = listed.commands
    assert command.type == command_pb2.Command.CHAIN_SYNC_APPLICATION
    assert command.commander == chain.id
    assert command.chain_sync_application == command_pb2.Command.ChainSyncApplication(
        deployment_chain_id=chain.id, block_index=1, application_id=second
    )


async def test_labels_of_a_matcher_count(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first", labels={"team": "x"})
    await plane.application(agent, name="in", labels={"team": "x", "env": "dev"})
    await plane.application(agent, name="out", labels={"team": "y"})
    disabled = await plane.application(agent, name="disabled", labels={"team": "x"})
    await plane.stores.applications.update(
        "default", disabled, lambda application: setattr(application, "disabled", True)
    )

    chain = await chain_of(plane, agent, first, Matcher(labels={"team": "x"}))

    assert names(chain) == [["first"], ["in"]]


async def test_the_kind_of_a_plugins_application_is_its_label(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    await plane.application(agent, name="labelled", labels={"kind": "TERRAFORM"})
    older = await plane.application(agent, name="older")
    await plane.application(agent, name="out", labels={"kind": "ECS"})

    def become_older(application: application_pb2.Application) -> None:
        application.kind = common_pb2.TERRAFORM
        application.platform_provider = "terraform"

    await plane.stores.applications.update("default", older, become_older)

    chain = await chain_of(plane, agent, first, Matcher(kind="TERRAFORM"))

    assert [sorted(block) for block in names(chain)] == [["first"], ["labelled", "older"]]


async def test_the_piped_of_the_next_block_is_told_when_its_turn_comes(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    first = await plane.application(agent, name="first")
    second = await plane.application(other, name="second")
    chain = await chain_of(plane, agent, first, Matcher(name="second"))
    await plane.deployment(
        other, second, "d1", deployment_chain_id=chain.id, deployment_chain_block_index=1
    )

    request = push_pb2.WatchRequest(instance_id="instance", data_folder_id="folder")
    async with aclosing(stream(other.push.Watch, request)) as messages:
        await soon(anext(messages))
        await end(agent, "d0", SUCCESS)
        told = (await soon(anext(messages))).change

    assert [deployment.id for deployment in told.deployments] == ["d1"]


@pytest.mark.parametrize("matcher", [Matcher(), Matcher(kind="NONSENSE")])
async def test_a_matcher_that_cannot_be_meant_is_refused_and_nothing_is_kept(
    plane: ServedControlPlane, matcher: Matcher
) -> None:
    agent = await plane.agent()
    first = await plane.application(agent)

    with pytest.raises(CallError) as caught:
        await chain_of(plane, agent, first, matcher)

    assert caught.value.status == "INVALID_ARGUMENT"
    assert await plane.stores.deployments.find("default", "d0") is None
    assert await plane.stores.chains.list_unfinished() == []


async def test_a_repeated_creation_makes_nothing_twice(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    await plane.application(agent, name="second")
    await chain_of(plane, agent, first, Matcher(name="second"))

    with pytest.raises(CallError) as caught:
        await chain_of(plane, agent, first, Matcher(name="second"))

    assert caught.value.status == "ALREADY_EXISTS"
    await chain_now(plane)
    listed = await call(agent.service.ListUnhandledCommands, pb.ListUnhandledCommandsRequest())
    assert len(listed.commands) == 1


async def test_a_block_moves_on_with_the_report_that_moves_it(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    second = await plane.application(agent, name="second")
    chain = await chain_of(plane, agent, first, Matcher(name="second"))
    await plane.deployment(
        agent, second, "d1", deployment_chain_id=chain.id, deployment_chain_block_index=1
    )
    waiting = await asked(agent, chain, "d1", 1)
    assert (await asked(agent, chain, "d0", 0)).plannable
    assert not waiting.plannable
    assert not waiting.cancel

    await end(agent, "d0", SUCCESS)

    assert states(await chain_now(plane)) == ["SUCCESS", "PENDING"]
    assert (await asked(agent, chain, "d1", 1)).plannable
    await end(agent, "d1", SUCCESS)
    done = await chain_now(plane)
    assert states(done) == ["SUCCESS", "SUCCESS"]
    assert done.status == model.DEPLOYMENT_CHAIN_SUCCESS
    assert done.completed_at > 0
    assert done.blocks[1].nodes[0].deployment_ref.deployment_id == "d1"
    assert (await asked(agent, chain, "d1", 1)).cancel


@pytest.mark.parametrize("status", [FAILURE, CANCELLED])
async def test_what_waits_for_a_failed_block_is_cancelled_with_the_reason(
    plane: ServedControlPlane, status: deployment_pb2.DeploymentStatus.ValueType
) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    second = await plane.application(agent, name="second")
    chain = await chain_of(plane, agent, first, Matcher(name="second"))
    await plane.deployment(
        agent, second, "d1", deployment_chain_id=chain.id, deployment_chain_block_index=1
    )

    await end(agent, "d0", status)

    verdict = await asked(agent, chain, "d1", 1)
    assert (verdict.cancel, verdict.plannable) == (True, False)
    how = "failed" if status == FAILURE else "was cancelled"
    assert verdict.cancel_reason == f"block 0 of its chain {how} at first"
    await end(agent, "d1", CANCELLED)
    done = await chain_now(plane)
    expected = model.ChainStatus.Value(
        deployment_pb2.DeploymentStatus.Name(status).replace("DEPLOYMENT_", "DEPLOYMENT_CHAIN_")
    )
    assert done.status == expected
    assert states(done)[1] == "CANCELLED"


async def test_a_block_without_applications_does_not_stop_the_chain(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    third = await plane.application(agent, name="third")
    chain = await chain_of(plane, agent, first, Matcher(name="nobody"), Matcher(name="third"))
    await plane.deployment(
        agent, third, "d2", deployment_chain_id=chain.id, deployment_chain_block_index=2
    )
    assert not (await asked(agent, chain, "d2", 2)).plannable

    await end(agent, "d0", SUCCESS)

    assert states(await chain_now(plane)) == ["SUCCESS", "SUCCESS", "PENDING"]
    assert (await asked(agent, chain, "d2", 2)).plannable


async def test_a_chain_of_which_nobody_else_is_a_part_ends_with_its_first(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    await chain_of(plane, agent, first, Matcher(name="nobody"))

    await end(agent, "d0", SUCCESS)

    assert (await chain_now(plane)).status == model.DEPLOYMENT_CHAIN_SUCCESS


async def test_a_member_whose_command_failed_ends_its_block(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    await plane.application(agent, name="second")
    await chain_of(plane, agent, first, Matcher(name="second"))
    await end(agent, "d0", SUCCESS)
    listed = await call(agent.service.ListUnhandledCommands, pb.ListUnhandledCommandsRequest())
    await chains.update_unfinished(plane.stores, lambda: 7)
    assert states(await chain_now(plane)) == ["SUCCESS", "PENDING"]

    await call(
        agent.service.ReportCommandHandled,
        pb.ReportCommandHandledRequest(
            command_id=listed.commands[0].id,
            status=command_pb2.COMMAND_FAILED,
            handled_at=6,
            metadata={"reason": "the application follows no chains"},
        ),
    )

    done = await chain_now(plane)
    told = done.blocks[1].nodes[0].deployment_ref
    assert (told.deployment_id, told.status_reason) == ("", "the application follows no chains")
    assert states(done) == ["SUCCESS", "CANCELLED"]
    assert done.status == model.DEPLOYMENT_CHAIN_CANCELLED
    assert await plane.stores.chains.list_unfinished() == []


async def test_a_chain_or_block_that_is_not_there_is_the_callers_fault(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    first = await plane.application(agent, name="first")
    chain = await chain_of(plane, agent, first)
    missing = model.DeploymentChain(id="missing")

    for which, index in ((chain, 1), (missing, 0)):
        with pytest.raises(CallError) as caught:
            await asked(agent, which, "d0", index)
        assert caught.value.status == "INVALID_ARGUMENT"


async def test_another_piped_cannot_begin_a_chain_with_this_application(
    plane: ServedControlPlane,
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    first = await plane.application(agent)

    with pytest.raises(CallError) as caught:
        await chain_of(plane, other, first)

    assert caught.value.status == "PERMISSION_DENIED"
