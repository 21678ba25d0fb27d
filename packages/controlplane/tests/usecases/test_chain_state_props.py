# SPDX-License-Identifier: Apache-2.0
"""Chains of any shape, however their deployments go: no end is taken back, no block goes early."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipecd_controlplane.usecases import chain_state
from pipecd_wire.model import deployment_chain_pb2 as pb
from pipecd_wire.model import deployment_pb2 as model

SHAPES = st.lists(st.integers(0, 2), min_size=1, max_size=4)
"""How many applications each block has; the first one has one."""


def chain_of(sizes: list[int]) -> pb.DeploymentChain:
    chain = pb.DeploymentChain(id="chain")
    for index, size in enumerate([1, *sizes[1:]]):
        block = chain.blocks.add()
        for number in range(size):
            block.nodes.add().application_ref.application_id = f"app-{index}-{number}"
    return chain


def deployment(
    index: int, number: int, status: model.DeploymentStatus.ValueType
) -> model.Deployment:
    return model.Deployment(
        id=f"d-{index}-{number}",
        application_id=f"app-{index}-{number}",
        deployment_chain_block_index=index,
        status=status,
    )


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.data())
def test_no_end_is_taken_back_and_no_block_goes_early(sizes: list[int], data: Any) -> None:
    chain = chain_of(sizes)
    known: dict[tuple[int, int], model.Deployment] = {}
    nodes = [
        (index, n) for index, block in enumerate(chain.blocks) for n in range(len(block.nodes))
    ]
    lost: dict[tuple[int, str], str] = {}
    for now in range(1, data.draw(st.integers(1, 12)) + 1):
        index, number = data.draw(st.sampled_from(nodes))
        if data.draw(st.integers(0, 5)) == 0:
            lost[index, f"app-{index}-{number}"] = "refused"
        else:
            status = data.draw(st.sampled_from(model.DeploymentStatus.values()))
            known[index, number] = deployment(index, number, status)
        before = pb.DeploymentChain()
        before.CopyFrom(chain)

        chain_state.follow(chain, known.values(), lost, now)

        for old, new in zip(before.blocks, chain.blocks, strict=True):
            if old.status in chain_state.ENDED:
                assert (new.status, new.completed_at) == (old.status, old.completed_at)
            assert (new.completed_at > 0) == (new.status in chain_state.ENDED)
        if before.completed_at:
            assert (chain.status, chain.completed_at) == (before.status, before.completed_at)
        for place in range(len(chain.blocks)):
            verdict = chain_state.plannable(chain, place)
            earlier = [block.status for block in chain.blocks[:place]]
            if verdict.plannable:
                assert not verdict.cancel_reason
                assert set(earlier) <= {pb.DEPLOYMENT_BLOCK_SUCCESS}
        again = pb.DeploymentChain()
        again.CopyFrom(chain)
        chain_state.follow(again, known.values(), lost, now)
        assert again == chain


@given(SHAPES)
def test_a_chain_whose_deployments_all_succeed_succeeds(sizes: list[int]) -> None:
    chain = chain_of(sizes)
    deployments = [
        deployment(index, number, model.DEPLOYMENT_SUCCESS)
        for index, block in enumerate(chain.blocks)
        for number in range(len(block.nodes))
    ]

    chain_state.follow(chain, deployments, {}, 5)

    assert chain.status == pb.DEPLOYMENT_CHAIN_SUCCESS
    assert chain.completed_at == 5
