# SPDX-License-Identifier: Apache-2.0
"""Stage logs: append only, each index once, sealed when complete."""

from typing import Any

import pytest
from sqlalchemy import update

from pipecd_controlplane.store import log_chunks, log_parts, schema, stage_logs
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import StateError
from pipecd_test_support.controlplane_messages import MessageBuilder

KEY = LogKey(deployment_id="d1", stage_id="s1")


async def read(kept: Stores, key: LogKey = KEY, **where: Any) -> tuple[list[int], bool]:
    found, position = [], 0
    while True:
        part = await kept.stage_logs.part("ours", key, after=position, **where)
        found += [block.index for block in part.blocks]
        position = part.position
        if part.at_end:
            return found, part.completed


async def test_a_log_that_is_not_there_is_empty_and_open(kept: Stores) -> None:
    assert await read(kept) == ([], False)


async def test_blocks_come_back_in_the_order_they_came(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 11), completed=False)
    await kept.stage_logs.append("ours", KEY, build.blocks(12), completed=False)

    assert await read(kept) == ([10, 11, 12], False)


async def test_a_block_that_arrives_twice_is_kept_once(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 11), completed=False)
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 11, 12), completed=False)
    await kept.stage_logs.append("ours", KEY, build.blocks(11, 12, 13, 13), completed=False)

    assert await read(kept) == ([10, 11, 12, 13], False)


async def test_the_first_block_of_an_index_stays(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=False)
    changed = build.blocks(10)
    changed[0].log = "rewritten"
    await kept.stage_logs.append("ours", KEY, changed, completed=False)

    part = await kept.stage_logs.part("ours", KEY)
    assert [block.log for block in part.blocks] == ["line 10"]


async def test_a_late_block_that_was_missing_is_kept(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 12), completed=False)
    await kept.stage_logs.append("ours", KEY, build.blocks(11), completed=False)

    assert await read(kept) == ([10, 12, 11], False)


async def test_a_sealed_log_takes_no_new_block(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=True)

    with pytest.raises(StateError, match="the log of the stage 's1' is complete"):
        await kept.stage_logs.append("ours", KEY, build.blocks(11), completed=False)

    assert await read(kept) == ([10], True)


async def test_the_last_report_may_be_repeated(kept: Stores, build: MessageBuilder) -> None:
    """Its answer may have been lost: a refusal would make the stage fail."""
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 11), completed=True)
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 11), completed=True)
    await kept.stage_logs.append("ours", KEY, build.blocks(11), completed=False)

    assert await read(kept) == ([10, 11], True)


async def test_a_sealed_log_opens_again_for_who_may_reopen_it(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=True)

    await kept.stage_logs.append("ours", KEY, build.blocks(11), completed=False, reopen=True)
    await kept.stage_logs.append("ours", KEY, build.blocks(12), completed=False)

    assert await read(kept) == ([10, 11, 12], False)


async def test_an_empty_last_report_seals(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=False)
    await kept.stage_logs.append("ours", KEY, [], completed=True)

    assert await read(kept) == ([10], True)


async def test_a_stage_without_output_has_a_sealed_empty_log(kept: Stores) -> None:
    await kept.stage_logs.append("ours", KEY, [], completed=True)

    assert await read(kept) == ([], True)


async def test_each_attempt_has_a_log_of_its_own(kept: Stores, build: MessageBuilder) -> None:
    again = LogKey(deployment_id="d1", stage_id="s1", retried_count=1)
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=True)
    await kept.stage_logs.append("ours", again, build.blocks(10), completed=False)

    assert await read(kept, again) == ([10], False)


async def test_another_projects_log_is_empty(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=False)

    part = await kept.stage_logs.part("theirs", KEY)

    assert part.blocks == []


async def test_reading_begins_at_an_index(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 11), completed=False)
    await kept.stage_logs.append("ours", KEY, build.blocks(12, 13), completed=False)

    assert await read(kept, from_index=11) == ([11, 12, 13], False)
    assert await read(kept, from_index=99) == ([], False)


async def test_reading_goes_on_after_a_position(kept: Stores, build: MessageBuilder) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10, 11), completed=False)
    first = await kept.stage_logs.part("ours", KEY)
    await kept.stage_logs.append("ours", KEY, build.blocks(12), completed=False)

    part = await kept.stage_logs.part("ours", KEY, after=first.position)

    assert [block.index for block in part.blocks] == [12]


async def test_a_long_log_is_read_part_by_part(kept: Stores, build: MessageBuilder) -> None:
    long = build.blocks(*range(5))
    for block in long:
        block.log = "x" * (log_parts.PART_BYTES // 2 + 1)
        await kept.stage_logs.append("ours", KEY, [block], completed=False)

    first = await kept.stage_logs.part("ours", KEY)

    assert (len(first.blocks), first.at_end) == (1, False)
    assert await read(kept) == ([0, 1, 2, 3, 4], False)


async def test_a_log_of_many_chunks_is_read_whole(kept: Stores, build: MessageBuilder) -> None:
    for index in range(150):
        await kept.stage_logs.append("ours", KEY, build.blocks(index), completed=False)

    whole = await kept.stage_logs.whole("ours", [KEY])

    assert [block.index for block in whole[KEY].blocks] == list(range(150))


async def test_logs_in_one_message_are_cut_where_it_has_no_more_room(
    kept: Stores, build: MessageBuilder
) -> None:
    other = LogKey(deployment_id="d1", stage_id="s2")
    for key in (KEY, other):
        for block in build.blocks(*range(5)):
            block.log = "x" * 1000
            await kept.stage_logs.append("ours", key, [block], completed=False)

    whole = await kept.stage_logs.whole("ours", [KEY, other], most=7_500)

    found = {key: (len(part.blocks), part.at_end) for key, part in whole.items()}
    assert found == {KEY: (5, True), other: (2, False)}


async def test_what_an_older_version_has_kept_is_known(
    kept: Stores, build: MessageBuilder, database: Any
) -> None:
    """It did not say where a chunk begins."""
    for index in range(10, 40, 2):
        await kept.stage_logs.append("ours", KEY, build.blocks(index), completed=False)
    older = update(schema.stage_log_chunk).values(first_index=log_chunks.BELOW_ALL, late=1)
    await database.write(lambda transaction: transaction.run(older))

    await kept.stage_logs.append("ours", KEY, build.blocks(*range(10, 42)), completed=False)

    indexes, _ = await read(kept)
    assert indexes == [*range(10, 40, 2), *range(11, 40, 2), 40, 41]


async def test_only_what_changed_a_log_is_told(
    kept: Stores, build: MessageBuilder, told: list[Change]
) -> None:
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=False)
    await kept.stage_logs.append("ours", KEY, build.blocks(10), completed=False)
    await kept.stage_logs.append("ours", KEY, [], completed=False)
    await kept.stage_logs.append("ours", KEY, [], completed=True)

    change = Change(kind=ChangeKind.STAGE_LOG, id="d1/s1/0", project_id="ours")
    assert told == [change, change]


async def test_a_log_has_a_limit_and_says_where_it_was_cut(
    kept: Stores, build: MessageBuilder
) -> None:
    logs = stage_logs.StageLogs(kept.database, max_bytes=100)
    for index in range(20):
        await logs.append("ours", KEY, build.blocks(index), completed=False)

    await logs.append("ours", KEY, build.blocks(19, 20, 21), completed=True)

    part = await kept.stage_logs.part("ours", KEY)
    assert part.completed
    assert "has reached its limit of 100 bytes" in part.blocks[-1].log
    assert sum(block.ByteSize() for block in part.blocks[:-1]) <= 100
    assert [block.index for block in part.blocks] == list(range(len(part.blocks)))


async def test_one_large_report_is_cut_at_the_same_place(
    kept: Stores, build: MessageBuilder
) -> None:
    logs = stage_logs.StageLogs(kept.database, max_bytes=100)

    await logs.append("ours", KEY, build.blocks(*range(1000)), completed=False)
    await logs.append("ours", KEY, build.blocks(*range(1000, 2000)), completed=False)

    part = await kept.stage_logs.part("ours", KEY)
    assert len(part.blocks) < 20
    assert "limit" in part.blocks[-1].log
    assert all("limit" not in block.log for block in part.blocks[:-1])
