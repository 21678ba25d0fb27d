# SPDX-License-Identifier: Apache-2.0
"""The rules of a deployment chain, as plain functions over it.

A block waits for all blocks before it. A block without applications does not stop the chain: it is
over when those before it are.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import ConfigError
from pipecd_wire.model import deployment_chain_pb2 as pb
from pipecd_wire.model import deployment_pb2

ENDED: Final = frozenset(
    {pb.DEPLOYMENT_BLOCK_SUCCESS, pb.DEPLOYMENT_BLOCK_FAILURE, pb.DEPLOYMENT_BLOCK_CANCELLED}
)
BLOCK_OF_DEPLOYMENT: Final = {
    deployment_pb2.DEPLOYMENT_SUCCESS: pb.DEPLOYMENT_BLOCK_SUCCESS,
    deployment_pb2.DEPLOYMENT_FAILURE: pb.DEPLOYMENT_BLOCK_FAILURE,
    deployment_pb2.DEPLOYMENT_CANCELLED: pb.DEPLOYMENT_BLOCK_CANCELLED,
    deployment_pb2.DEPLOYMENT_RUNNING: pb.DEPLOYMENT_BLOCK_RUNNING,
    deployment_pb2.DEPLOYMENT_ROLLING_BACK: pb.DEPLOYMENT_BLOCK_RUNNING,
}

Node = tuple[int, str]
"""The index of a block and the id of an application in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannableVerdict:
    """Whether a deployment of a chain may be planned now, or must be cancelled."""

    plannable: bool = False
    cancel_reason: str = ""


def plannable(chain: pb.DeploymentChain, index: int) -> PlannableVerdict:
    """Returns whether a deployment in this block may be planned now.

    Raises ConfigError when the chain has no such block.
    """
    if index >= len(chain.blocks):
        raise ConfigError(
            f"invalid request: the chain {chain.id!r} has {len(chain.blocks)} blocks, none {index}"
        )
    if chain.blocks[index].status in ENDED:
        return PlannableVerdict(
            cancel_reason="the block of the chain that it belongs to is over already"
        )
    before = [block.status for block in chain.blocks[:index]]
    for number, status in enumerate(before):
        if status in ENDED - {pb.DEPLOYMENT_BLOCK_SUCCESS}:
            return PlannableVerdict(cancel_reason=_describe_end(chain.blocks[number], number))
    return PlannableVerdict(
        plannable=all(status == pb.DEPLOYMENT_BLOCK_SUCCESS for status in before)
    )


def _describe_end(block: pb.ChainBlock, number: int) -> str:
    """Returns why a block has not succeeded, with the first of its applications that did not."""
    failed = block.status == pb.DEPLOYMENT_BLOCK_FAILURE
    sentence = f"block {number} of its chain {'failed' if failed else 'was cancelled'}"
    wanted = deployment_pb2.DEPLOYMENT_FAILURE if failed else deployment_pb2.DEPLOYMENT_CANCELLED
    for node in block.nodes:
        if node.HasField("deployment_ref") and node.deployment_ref.status == wanted:
            reason = node.deployment_ref.status_reason
            return f"{sentence} at {node.application_ref.application_name}" + (
                f": {reason}" if reason else ""
            )
    return sentence


def find_waiting(chain: pb.DeploymentChain) -> list[str]:
    """Returns the deployments of blocks that are not over and have not begun."""
    return [
        node.deployment_ref.deployment_id
        for block in chain.blocks
        if block.status == pb.DEPLOYMENT_BLOCK_PENDING
        for node in block.nodes
        if node.deployment_ref.deployment_id
    ]


def follow(
    chain: pb.DeploymentChain,
    deployments: Iterable[deployment_pb2.Deployment],
    lost: Mapping[Node, str],
    now: int,
) -> None:
    """Updates the chain from its deployments.

    The nodes in `lost` will never have a deployment, each for the reason given.
    """
    by_node = {
        (each.deployment_chain_block_index, each.application_id): each for each in deployments
    }
    before = pb.DEPLOYMENT_BLOCK_SUCCESS
    for index, block in enumerate(chain.blocks):
        for node in block.nodes:
            deployment = by_node.get((index, node.application_ref.application_id))
            if deployment is not None:
                node.deployment_ref.deployment_id = deployment.id
                node.deployment_ref.status = deployment.status
                node.deployment_ref.status_reason = deployment.status_reason
            elif (reason := lost.get((index, node.application_ref.application_id))) is not None:
                node.deployment_ref.status = deployment_pb2.DEPLOYMENT_CANCELLED
                node.deployment_ref.status_reason = reason
        if block.status not in ENDED:
            _move(block, _block_status(block, before), now)
        before = block.status
    if chain.completed_at:
        return
    statuses = [block.status for block in chain.blocks]
    status = combine_statuses(statuses)
    if status is not None:
        # Blocks and chains number their statuses alike.
        chain.status = pb.ChainStatus.ValueType(status)
        if status in ENDED:
            chain.completed_at = now


def combine_statuses(
    statuses: Collection[pb.ChainBlockStatus.ValueType],
) -> pb.ChainBlockStatus.ValueType | None:
    """Returns the status of a whole from those of its parts; None leaves it as it was."""
    if all(status == pb.DEPLOYMENT_BLOCK_SUCCESS for status in statuses):
        return pb.DEPLOYMENT_BLOCK_SUCCESS
    for status in (
        pb.DEPLOYMENT_BLOCK_FAILURE,
        pb.DEPLOYMENT_BLOCK_CANCELLED,
        pb.DEPLOYMENT_BLOCK_RUNNING,
    ):
        if status in statuses:
            return status
    if pb.DEPLOYMENT_BLOCK_SUCCESS in statuses:
        return pb.DEPLOYMENT_BLOCK_RUNNING  # some are over, the others have not begun
    return None


def _block_status(
    block: pb.ChainBlock, before: pb.ChainBlockStatus.ValueType
) -> pb.ChainBlockStatus.ValueType | None:
    if not block.nodes:
        return before if before in ENDED else None
    return combine_statuses(
        [
            BLOCK_OF_DEPLOYMENT.get(node.deployment_ref.status, pb.DEPLOYMENT_BLOCK_PENDING)
            for node in block.nodes
        ]
    )


def _move(block: pb.ChainBlock, status: pb.ChainBlockStatus.ValueType | None, now: int) -> None:
    if status is None or status == block.status:
        return
    block.status = status
    block.started_at = block.started_at or now
    if status in ENDED:
        block.completed_at = now
