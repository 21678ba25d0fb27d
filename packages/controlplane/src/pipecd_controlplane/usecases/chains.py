# SPDX-License-Identifier: Apache-2.0
"""Deployment chains: created in one transaction, and updated in that of the report they depend on.

A timed job looks at all unfinished chains as a safety net: it notices applications whose command
failed or timed out.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from pipecd_controlplane.store.applications import ApplicationFilter, is_plugin_based
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import application_reports, chain_state, holds, limits
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases.chain_state import Node, PlannableVerdict
from pipecd_controlplane.usecases.ownership import Agent, own_deployment
from pipecd_model.errors import ConfigError, NotFoundError
from pipecd_model.ids import new_id
from pipecd_wire.model import application_pb2, command_pb2, common_pb2, deployment_pb2
from pipecd_wire.model import deployment_chain_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice

NAMESPACE: Final = uuid.UUID("a3c54f0e-7e5b-5a3d-9b0a-43b9f2a7f0c6")

MOST_BLOCKS: Final = 50
MOST_APPLICATIONS: Final = 500
"""Of one block."""

REASON: Final = "reason"
"""Key in the metadata of a failed command."""

Matcher = pipedservice.CreateDeploymentChainRequest.ApplicationMatcher


async def create(
    stores: Stores,
    agent: Agent,
    first: application_pb2.Application,
    request: pipedservice.CreateDeploymentChainRequest,
    now: Now,
) -> None:
    """Add the chain, its first deployment and a command per further application."""
    if len(request.matchers) >= MOST_BLOCKS:
        raise ConfigError(
            f"invalid request: matchers: {len(request.matchers)}, at most {MOST_BLOCKS - 1}"
        )
    at = now()
    deployment = deployment_pb2.Deployment()
    deployment.CopyFrom(request.first_deployment)
    reports.apply_created(deployment, at)
    limits.size("deployment", deployment, limits.DEPLOYMENT_BYTES)
    chain = pb.DeploymentChain(
        id=new_id(), project_id=agent.project_id, created_at=at, updated_at=at
    )
    deployment.deployment_chain_id = chain.id
    deployment.deployment_chain_block_index = 0
    node = _node(first)
    node.deployment_ref.deployment_id = deployment.id
    node.deployment_ref.status = deployment.status
    chain.blocks.add(nodes=[node], started_at=at)
    commands: list[command_pb2.Command] = []
    for index, matcher in enumerate(request.matchers, start=1):
        matched = await _find_matching(stores, agent.project_id, index, matcher)
        members = [each for each in matched if each.id != first.id]
        chain.blocks.add(nodes=[_node(each) for each in members])
        commands += [_command(chain, index, each, at) for each in members]

    async def work(transaction: Transaction) -> None:
        await stores.deployments.add_in(transaction, deployment)
        await application_reports.follow_created_in(stores, transaction, deployment)
        await holds.follow_created_in(stores, transaction, deployment)
        await stores.chains.add_in(transaction, chain)
        for command in commands:
            await stores.commands.add_in(transaction, command)

    await stores.database.write(work)


async def _find_matching(
    stores: Stores, project_id: str, index: int, matcher: Matcher
) -> list[application_pb2.Application]:
    if not (matcher.name or matcher.kind or matcher.labels):
        raise ConfigError(
            f"invalid request: matchers: number {index} names nothing",
            hint="say a name, a kind or labels",
        )
    if matcher.kind and matcher.kind not in common_pb2.ApplicationKind.keys():  # noqa: SIM118 - an enum, no mapping
        raise ConfigError(f"invalid request: matchers: there is no kind {matcher.kind!r}")
    wanted = ApplicationFilter(
        name=matcher.name,
        kinds=(common_pb2.ApplicationKind.Value(matcher.kind),) if matcher.kind else (),
        disabled=False,
        labels=dict(matcher.labels),
    )
    found = await _list_applications(stores, project_id, index, wanted)
    if not matcher.kind:
        return found
    # The kind of a plugin's application is a label; its field has no meaning.
    of_kind = [each for each in found if not is_plugin_based(each)]
    labelled = replace(wanted, kinds=(), labels={**wanted.labels, "kind": matcher.kind})
    if wanted.labels.get("kind", matcher.kind) == matcher.kind:
        others = await _list_applications(stores, project_id, index, labelled)
        of_kind += [each for each in others if is_plugin_based(each)]
    return of_kind


async def _list_applications(
    stores: Stores, project_id: str, index: int, wanted: ApplicationFilter
) -> list[application_pb2.Application]:
    page = await stores.applications.page(project_id, wanted, limit=MOST_APPLICATIONS, cursor="")
    if page.cursor:
        raise ConfigError(
            f"invalid request: matchers: number {index} is about more than"
            f" {MOST_APPLICATIONS} applications"
        )
    return page.items


def _node(application: application_pb2.Application) -> pb.ChainNode:
    return pb.ChainNode(
        application_ref=pb.ChainApplicationRef(
            application_id=application.id, application_name=application.name
        )
    )


def _command(
    chain: pb.DeploymentChain, index: int, application: application_pb2.Application, at: int
) -> command_pb2.Command:
    return command_pb2.Command(
        id=_command_id(chain.id, (index, application.id)),
        piped_id=application.piped_id,
        project_id=chain.project_id,
        application_id=application.id,
        commander=chain.id,
        type=command_pb2.Command.CHAIN_SYNC_APPLICATION,
        chain_sync_application=command_pb2.Command.ChainSyncApplication(
            deployment_chain_id=chain.id,
            block_index=index,
            application_id=application.id,
            sync_strategy=common_pb2.AUTO,
        ),
        created_at=at,
        updated_at=at,
    )


def _command_id(chain_id: str, node: Node) -> str:
    return str(uuid.uuid5(NAMESPACE, f"{chain_id}/{node[0]}/{node[1]}"))


async def plannable(
    stores: Stores, agent: Agent, request: pipedservice.InChainDeploymentPlannableRequest
) -> PlannableVerdict:
    """Returns whether a deployment of a chain may be planned now.

    Raises ConfigError when there is no such chain, or no such block in it.
    """
    await own_deployment(stores.deployments, agent, request.deployment_id)
    chain = await stores.chains.find(agent.project_id, request.deployment_chain_id)
    if chain is None:
        raise ConfigError(
            f"invalid request: there is no deployment chain {request.deployment_chain_id!r}"
        )
    return chain_state.plannable(chain, request.deployment_chain_block_index)


async def follow_in(
    stores: Stores,
    transaction: Transaction,
    project_id: str,
    chain_id: str,
    now: Now,
    lost: Mapping[Node, str] = MappingProxyType({}),
) -> None:
    """Updates a chain from the state of its deployments. Ignores a chain that does not exist.

    The pipeds of those that wait for their block are told when a block is over.
    """
    deployments = await stores.deployments.list_by_chain_in(transaction, project_id, chain_id)
    before: list[pb.ChainBlockStatus.ValueType] = []

    def edit(chain: pb.DeploymentChain) -> None:
        before[:] = [block.status for block in chain.blocks]
        chain_state.follow(chain, deployments, lost, now())

    try:
        chain = await stores.chains.update_in(transaction, project_id, chain_id, edit)
    except NotFoundError:
        return
    if before == [block.status for block in chain.blocks]:
        return
    pipeds = {each.id: each.piped_id for each in deployments}
    for deployment_id in chain_state.find_waiting(chain):
        if deployment_id not in pipeds:
            continue
        transaction.publish(
            Change(
                kind=ChangeKind.DEPLOYMENT,
                id=deployment_id,
                project_id=project_id,
                piped_id=pipeds[deployment_id],
            )
        )


async def update_unfinished(stores: Stores, now: Now) -> None:
    """Updates every chain that is not finished. Runs as a timed job."""
    for project_id, chain_id in await stores.chains.list_unfinished():
        await _update(stores, project_id, chain_id, now)


async def _update(stores: Stores, project_id: str, chain_id: str, now: Now) -> None:
    lost = await _find_lost(stores, await stores.chains.get(project_id, chain_id))

    async def work(transaction: Transaction) -> None:
        await follow_in(stores, transaction, project_id, chain_id, now, lost)

    await stores.database.write(work)


async def _find_lost(stores: Stores, chain: pb.DeploymentChain) -> dict[Node, str]:
    """Returns the members whose command came to nothing, each with the reason."""
    found = {}
    for index, block in enumerate(chain.blocks):
        for node in block.nodes:
            member = (index, node.application_ref.application_id)
            if node.deployment_ref.deployment_id:
                continue
            command = await stores.commands.find(chain.project_id, _command_id(chain.id, member))
            if command is None:
                found[member] = "nothing is left of the command for it"
            elif command.status == command_pb2.COMMAND_TIMEOUT:
                found[member] = "its piped did not take the command in time"
            elif command.status == command_pb2.COMMAND_FAILED:
                found[member] = command.metadata.get(REASON, "its piped refused it")
    return found


async def take_outcome(stores: Stores, project_id: str, command_id: str, now: Now) -> None:
    """Updates the chain of a command that came to nothing; other commands are ignored."""
    command = await stores.commands.find(project_id, command_id)
    if (
        command is not None
        and command.type == command_pb2.Command.CHAIN_SYNC_APPLICATION
        and command.status == command_pb2.COMMAND_FAILED
    ):
        chain_id = command.chain_sync_application.deployment_chain_id
        if await stores.chains.find(project_id, chain_id) is not None:
            await _update(stores, project_id, chain_id, now)
