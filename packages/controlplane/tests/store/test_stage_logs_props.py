# SPDX-License-Identifier: Apache-2.0
"""However a log is cut, repeated and delayed: every index once, in the order of arrival."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.open import open_database
from pipecd_controlplane.store.stage_logs import LogKey, StageLogs
from pipecd_test_support.chosen_store import count_examples, temporary_database
from pipecd_wire.model import logblock_pb2

KEY = LogKey(deployment_id="d1", stage_id="s1")


def blocks(indexes: list[int]) -> list[logblock_pb2.LogBlock]:
    return [logblock_pb2.LogBlock(index=index, log="x") for index in indexes]


RUN = st.tuples(st.integers(0, 300), st.integers(1, 40)).map(
    lambda run: list(range(run[0], run[0] + run[1]))
)


def test_every_index_is_kept_once_in_the_order_of_arrival(store_kind: str) -> None:
    @settings(max_examples=count_examples(60), deadline=None)
    @given(st.lists(st.lists(st.integers(0, 12), max_size=6), max_size=8))
    def check(reports: list[list[int]]) -> None:
        assert asyncio.run(kept_after(reports)) == find_expected(reports)

    check()


def test_so_it_is_with_many_chunks_that_overlap(store_kind: str) -> None:
    """More chunks than are looked at in one go, early, late and mixed ones."""

    @settings(max_examples=count_examples(30), deadline=None)
    @given(st.lists(RUN, min_size=20, max_size=60))
    def check(reports: list[list[int]]) -> None:
        assert asyncio.run(kept_after(reports)) == find_expected(reports)

    check()


def find_expected(reports: list[list[int]]) -> list[int]:
    return list(dict.fromkeys(index for report in reports for index in report))


async def kept_after(reports: list[list[int]]) -> list[int]:
    with temporary_database() as config:
        async with open_database(config, on_commit=lambda _changes: None) as database:
            logs = StageLogs(database)
            for report in reports:
                await logs.append("ours", KEY, blocks(report), completed=False)
            whole = await logs.whole("ours", [KEY])
            return [block.index for block in whole[KEY].blocks]


class CountingDatabase:
    """Counts the rows that units of work read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.rows = 0

    async def write(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def counted(transaction: Any) -> Any:
            read = transaction.all

            async def read_and_count(*arguments: Any, **parameters: Any) -> Any:
                rows = await read(*arguments, **parameters)
                self.rows += len(rows)
                return rows

            transaction.all = read_and_count
            return await work(transaction)

        return await self._database.write(counted)


async def test_a_log_that_is_sent_again_reads_each_chunk_once_or_twice(database: Database) -> None:
    """A script's output is sent again from its start when its plugin was restarted."""
    reports = [list(range(start, start + 10)) for start in range(0, 2000, 10)]
    counting = CountingDatabase(database)
    logs = StageLogs(counting)  # type: ignore[arg-type]
    for report in reports:
        await logs.append("ours", KEY, blocks(report), completed=False)
    assert counting.rows == 0

    for report in reports:
        await logs.append("ours", KEY, blocks(report), completed=False)

    assert counting.rows <= 2 * len(reports)
