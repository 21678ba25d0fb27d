# SPDX-License-Identifier: Apache-2.0
"""However a log is written, completed, sealed and opened again: it reads as if it were rows."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.log_lines import LogLines
from pipecd_controlplane.store.log_sealing import DueLog, LogSealing
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stage_logs import LogKey, StageLogs
from pipecd_wire.model.logblock_pb2 import LogBlock

KEY = LogKey(deployment_id="d1", stage_id="s1")

REPORT = st.lists(st.integers(0, 30), max_size=6)
STEPS = st.lists(st.one_of(REPORT, st.just("seal"), st.just("seal a part")), max_size=14)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 12), st.integers(0, 30))
def test_a_log_reads_the_same_wherever_its_parts_are(
    steps: list[list[int] | str], after: int, from_index: int
) -> None:
    asyncio.run(check(steps, after, from_index))


async def check(steps: list[list[int] | str], after: int, from_index: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        blobs = FolderBlobs(Path(folder) / "blobs")
        await blobs.open()
        async with (
            open_database(SqliteFolder(folder=Path(folder) / "1"), lambda _: None) as database,
            open_database(SqliteFolder(folder=Path(folder) / "2"), lambda _: None) as plain,
        ):
            logs, lines = StageLogs(database, blobs), LogLines(database, blobs)
            model, model_lines = StageLogs(plain), LogLines(plain)
            sealing = LogSealing(database, lambda: 1, segment_bytes=40)
            for step in steps:
                if isinstance(step, str):
                    most = 60 if step == "seal a part" else 10**6
                    await sealing.seal(blobs, DueLog(project_id="ours", key=KEY), most=most)
                    continue
                blocks = [LogBlock(index=index, log=f"line {index}") for index in step]
                for each in (logs, model):
                    await each.append("ours", KEY, blocks, completed=True, reopen=True)
            assert await logs.whole("ours", [KEY]) == await model.whole("ours", [KEY])
            assert await read(logs, after, from_index) == await read(model, after, from_index)
            for first, count in ((0, 3), (after, 4), (1, 100)):
                found, expected = [
                    await each.read_range("ours", KEY, first_line=first, count=count)
                    for each in (lines, model_lines)
                ]
                assert found == expected


async def read(logs: StageLogs, after: int, from_index: int) -> list[int]:
    found: list[int] = []
    while True:
        part = await logs.part("ours", KEY, after=after, from_index=from_index)
        found += [block.index for block in part.blocks]
        after = part.position
        if part.at_end:
            return found
