# SPDX-License-Identifier: Apache-2.0
"""Logs of all stages in one answer: whole if they fit, else with a line that says so."""

from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import stage_logs
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import deployment_pb2 as pb

ONE_MESSAGE = 10 * 1024 * 1024
NOW = MessageBuilder.NOON + 3600


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

    logs = await stage_logs.read_whole(kept, deployment, lambda: NOW)

    assert sum(block.ByteSize() for block in logs["s1"].blocks) < ONE_MESSAGE
    assert [block.log for block in logs["s1"].blocks[8:]] == [stage_logs.GOES_ON]
    assert logs["s2"].blocks == []


async def test_whoever_goes_on_where_an_answer_was_cut_misses_no_line(
    kept: Stores, build: MessageBuilder
) -> None:
    """As pipectl does: behind the last index of each log that is not completed."""
    lines = {"long": 12, "behind": 3}
    for stage_id, count in lines.items():
        blocks = build.blocks(*range(count))
        for block in blocks:
            block.log = block.log.ljust(1_000_000)
            key = LogKey(deployment_id="d1", stage_id=stage_id)
            is_last = block is blocks[-1]
            await kept.stage_logs.append("ours", key, [block], completed=is_last)
    stages = [pb.PipelineStage(id=stage_id) for stage_id in lines]
    deployment = pb.Deployment(id="d1", project_id="ours", stages=stages)

    logs = await stage_logs.read_whole(kept, deployment, lambda: NOW)

    for stage_id, count in lines.items():
        *shown, note = logs[stage_id].blocks
        assert note.log == stage_logs.GOES_ON
        assert note.created_at == NOW  # seen also by who wants only new lines
        assert not logs[stage_id].completed
        indexes = [block.index for block in shown]
        next_index, is_over = note.index + 1, False
        while not is_over:
            key = LogKey(deployment_id="d1", stage_id=stage_id)
            part = await stage_logs.read_from(kept, "ours", key, next_index)
            indexes += [block.index for block in part.blocks]
            next_index, is_over = indexes[-1] + 1, part.completed
        assert indexes == list(range(count))
