# SPDX-License-Identifier: Apache-2.0
"""Deployment chains as people read them: a table of all, and the page of one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from pipecd_model.deployment import is_completed
from pipecd_pipectl.data import name_state
from pipecd_pipectl.output import echo, print_fields
from pipecd_pipectl.queuetable import describe_queued
from pipecd_pipectl.statuses import COLOURS, status_name
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age, format_moment
from pipecd_wire.model import deployment_chain_pb2 as pb
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment

OVER: Final = frozenset(
    {pb.DEPLOYMENT_CHAIN_SUCCESS, pb.DEPLOYMENT_CHAIN_FAILURE, pb.DEPLOYMENT_CHAIN_CANCELLED}
)
NO_APPLICATION: Final = "no application matched when the chain began"

Queued = Mapping[str, QueuedDeployment]
"""By deployment, what its agent says that it waits for."""


def is_over(chain: pb.DeploymentChain) -> bool:
    """Returns whether nothing of a chain begins any more."""
    return chain.status in OVER


def print_chains(
    chains: Sequence[pb.DeploymentChain], queued: Queued, *, wide: bool, now: float
) -> None:
    """Prints a table of chains."""
    short = {} if wide else shorten_ids(each.id for each in chains)
    columns: list[Column[pb.DeploymentChain]] = [
        Column(heading="ID", cell=lambda it: short.get(it.id, it.id), fixed=True),
        Column(
            heading="STATUS",
            cell=lambda it: _name_chain(it.status),
            colour=lambda it: COLOURS.get(_name_chain(it.status)),
            fixed=True,
        ),
        Column(heading="DONE", cell=_count_blocks, fixed=True),
        Column(heading="CREATED", cell=lambda it: format_age(it.created_at, now), fixed=True),
        Column(heading="APPLICATIONS", cell=_list_applications),
        Column(heading="WHY", cell=lambda it: describe_chain(it, queued)),
    ]
    print_table(columns, chains, wide=wide)


def describe_chain(chain: pb.DeploymentChain, queued: Queued) -> str:
    """Returns what a chain waits for, or why it ended; empty for one that succeeded."""
    if chain.status == pb.DEPLOYMENT_CHAIN_SUCCESS:
        return ""
    for row in _list_rows(chain, queued):
        if row.node is None or row.status == deployment_pb2.DEPLOYMENT_SUCCESS:
            continue
        if is_over(chain) and not is_completed(row.status):
            continue
        said = f": {row.why}" if row.why else ""
        return f"block {row.block}: {row.application} {status_name(row.status)}{said}"
    return ""


def print_chain(chain: pb.DeploymentChain, queued: Queued, *, wide: bool, now: float) -> None:
    """Prints the page of a chain: each block with its deployments."""
    word = _name_chain(chain.status)
    state = click.style(word, fg=COLOURS.get(word), bold=True)
    echo(f"{click.style('chain', bold=True)}  {state}")
    echo()
    print_fields(
        [
            ("id", chain.id),
            ("blocks done", _count_blocks(chain)),
            ("why", describe_chain(chain, queued)),
            ("created", format_moment(chain.created_at, now)),
            ("completed", format_moment(chain.completed_at, now)),
        ]
    )
    echo()
    rows = list(_list_rows(chain, queued))
    ids = [each.deployment_id for each in rows if each.deployment_id]
    short = {} if wide else shorten_ids(ids)
    columns: list[Column[_Row]] = [
        Column(heading="BLOCK", cell=lambda it: str(it.block), fixed=True),
        Column(
            heading="STATE",
            cell=lambda it: it.block_state,
            colour=lambda it: COLOURS.get(it.block_state),
            fixed=True,
        ),
        Column(heading="APPLICATION", cell=lambda it: it.application, fixed=True),
        Column(
            heading="DEPLOYMENT",
            cell=lambda it: short.get(it.deployment_id, it.deployment_id) or "-",
            fixed=True,
        ),
        Column(
            heading="STATUS",
            cell=lambda it: status_name(it.status) if it.node is not None else "-",
            colour=lambda it: COLOURS.get(status_name(it.status)) if it.node is not None else None,
            fixed=True,
        ),
        Column(heading="WHY", cell=lambda it: it.why),
    ]
    print_table(columns, rows, wide=wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One application of a block; none for a block that matched nothing."""

    block: int
    block_state: str
    node: pb.ChainNode | None = None
    why: str

    @property
    def application(self) -> str:
        return self.node.application_ref.application_name if self.node is not None else "-"

    @property
    def deployment_id(self) -> str:
        return self.node.deployment_ref.deployment_id if self.node is not None else ""

    @property
    def status(self) -> deployment_pb2.DeploymentStatus.ValueType:
        if self.node is None:
            return deployment_pb2.DEPLOYMENT_PENDING
        return self.node.deployment_ref.status


def _list_rows(chain: pb.DeploymentChain, queued: Queued) -> Iterator[_Row]:
    for index, block in enumerate(chain.blocks):
        state = name_state(pb.ChainBlockStatus.DESCRIPTOR, block.status)
        if not block.nodes:
            yield _Row(block=index, block_state=state, why=NO_APPLICATION)
        for node in block.nodes:
            why = _describe_node(chain, node, queued)
            yield _Row(block=index, block_state=state, node=node, why=why)


def _describe_node(chain: pb.DeploymentChain, node: pb.ChainNode, queued: Queued) -> str:
    """Returns what one application of a chain waits for, or why its deployment ended."""
    reference = node.deployment_ref
    waits = queued.get(reference.deployment_id)
    if waits is not None and not is_completed(reference.status):
        return describe_queued(waits)
    if reference.deployment_id or reference.status_reason:
        return reference.status_reason
    if is_over(chain):
        return "the chain ended before it had a deployment"
    return "its piped has not made the deployment yet"


def _count_blocks(chain: pb.DeploymentChain) -> str:
    done = sum(each.status == pb.DEPLOYMENT_BLOCK_SUCCESS for each in chain.blocks)
    return f"{done}/{len(chain.blocks)}"


def _list_applications(chain: pb.DeploymentChain) -> str:
    blocks = (
        ", ".join(node.application_ref.application_name for node in block.nodes) or "-"
        for block in chain.blocks
    )
    return " > ".join(blocks)


def _name_chain(status: int) -> str:
    return name_state(pb.ChainStatus.DESCRIPTOR, status)
