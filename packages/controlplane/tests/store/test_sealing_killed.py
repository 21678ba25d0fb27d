# SPDX-License-Identifier: Apache-2.0
"""A process that is killed while it seals a log or a value: all is there, wherever it is."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from pipecd_controlplane.ops.objects import remove_orphans, seal_values
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.log_sealing import DueLog
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import stores
from pipecd_test_support.controlplane_messages import MessageBuilder

KEY = LogKey(deployment_id="d1", stage_id="s1")
DUE = DueLog(project_id="ours", key=KEY)

SEALER = """
import asyncio, os, signal, sys
from pathlib import Path
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.log_sealing import DueLog, LogSealing
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stage_logs import LogKey

folder, place = Path(sys.argv[1]), sys.argv[2]

def die(at):
    if at == place:
        os.kill(os.getpid(), signal.SIGKILL)

class KilledBlobs(FolderBlobs):
    async def put_parts(self, key, parts):
        async def cut():
            async for part in parts:
                yield part
                die("half written")
        size = await super().put_parts(key, cut())
        die("written")
        return size

async def main():
    async with open_database(SqliteFolder(folder=folder / "data"), lambda _: None) as database:
        key = LogKey(deployment_id="d1", stage_id="s1")
        sealing = LogSealing(database, lambda: 1, segment_bytes=50)
        await sealing.seal(KilledBlobs(folder / "blobs"), DueLog(project_id="ours", key=key))
        die("committed")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("place", "objects"), [("half written", 0), ("written", 1), ("committed", 1)]
)
async def test_a_log_is_whole_wherever_its_sealing_was_killed(
    tmp_path: Path, build: MessageBuilder, place: str, objects: int
) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.open()
    config = SqliteFolder(folder=tmp_path / "data")
    async with open_database(config, lambda _: None) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        for start in range(0, 40, 4):
            await kept.stage_logs.append(
                "ours", KEY, build.blocks(*range(start, start + 4)), completed=start == 36
            )

    command = [sys.executable, "-c", SEALER, str(tmp_path), place]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True)

    assert ended.returncode == -9, ended.stderr
    assert len([each async for each in blobs.iterate()]) == objects
    async with open_database(config, lambda _: None) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        for _ in range(2):
            whole = (await kept.stage_logs.whole("ours", [KEY]))[KEY]
            assert [block.index for block in whole.blocks] == list(range(40))
            await kept.log_sealing.seal(blobs, DUE)


VALUE_SEALER = """
import asyncio, os, signal, sys
from pathlib import Path
from pipecd_controlplane.ops.objects import seal_values
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stores import stores

folder, place = Path(sys.argv[1]), sys.argv[2]

def die(at):
    if at == place:
        os.kill(os.getpid(), signal.SIGKILL)

class KilledBlobs(FolderBlobs):
    async def put(self, key, data, *, replace=False):
        await super().put(key, data, replace=replace)
        die("written")

async def main():
    async with open_database(SqliteFolder(folder=folder / "data"), lambda _: None) as database:
        blobs = KilledBlobs(folder / "blobs")
        await seal_values(stores(database, lambda: 1, blobs=blobs), blobs)
        die("committed")

asyncio.run(main())
"""


@pytest.mark.parametrize(("place", "orphans"), [("written", 1), ("committed", 0)])
async def test_a_value_is_there_wherever_its_sealing_was_killed(
    tmp_path: Path, place: str, orphans: int
) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.open()
    config = SqliteFolder(folder=tmp_path / "data")
    large = bytes(range(256)) * 4096
    async with open_database(config, lambda _: None) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        await kept.shared_objects.put("ours", "app", "plugin", "key", large)

    command = [sys.executable, "-c", VALUE_SEALER, str(tmp_path), place]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True)

    assert ended.returncode == -9, ended.stderr
    assert len([each async for each in blobs.iterate()]) == 1
    async with open_database(config, lambda _: None) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        assert await kept.shared_objects.find("ours", "app", "plugin", "key") == large
        assert await seal_values(kept, blobs) == orphans
        assert await remove_orphans(kept, blobs, lambda: 2**40) == orphans
        assert await kept.shared_objects.find("ours", "app", "plugin", "key") == large
