# SPDX-License-Identifier: Apache-2.0
"""However a log is cut, repeated and delayed: every index once, in the order of arrival."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.store.sql.sqlite import open_sqlite
from controlplane.store.stage_logs import LogKey, StageLogs
from pipecd_wire.model import logblock_pb2

KEY = LogKey(deployment_id="d1", stage_id="s1")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 12), max_size=6), max_size=8))
def test_every_index_is_kept_once_in_the_order_of_arrival(reports: list[list[int]]) -> None:
    expected = list(dict.fromkeys(index for report in reports for index in report))

    assert asyncio.run(kept_after(reports)) == expected


async def kept_after(reports: list[list[int]]) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        async with open_sqlite(Path(folder), on_commit=lambda _changes: None) as database:
            logs = StageLogs(database)
            for report in reports:
                blocks = [logblock_pb2.LogBlock(index=index, log="x") for index in report]
                await logs.append("ours", KEY, blocks, completed=False)
            whole = await logs.whole("ours", [KEY])
            return [block.index for block in whole[KEY].blocks]
