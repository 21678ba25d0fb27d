# SPDX-License-Identifier: Apache-2.0
"""Logs of all stages in one answer: whole if they fit, else with a line that says so."""

from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import stage_logs
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import deployment_pb2 as pb

ONE_MESSAGE = 10 * 1024 * 1024


async def test_a_log_that_is_too_long_for_one_answer_says_that_it_goes_on(
    kept: Stores, build: MessageBuilder
) -> None:
    for block in build.blocks(*range(12)):
        block.log = "x" * 1_000_000
        await kept.stage_logs.append(
            "ours", LogKey(deployment_id="d1", stage_id="s1"), [block], completed=False
        )
    deployment = pb.Deployment(
        id="d1", project_id="ours", stages=[pb.PipelineStage(id="s1"), pb.PipelineStage(id="s2")]
    )

    logs = await stage_logs.read_whole(kept, deployment)

    assert sum(block.ByteSize() for block in logs["s1"].blocks) < ONE_MESSAGE
    assert [block.log for block in logs["s1"].blocks[8:]] == [stage_logs.GOES_ON]
    assert logs["s2"].blocks == []
