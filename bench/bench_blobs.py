# SPDX-License-Identifier: Apache-2.0
"""What objects cost: beside bare files, and sealed logs beside the same logs as rows.

* Objects of 20 kB: put and get in a folder, beside files that are written, synced and read without
  us. The ratio is what the contract costs: another name first, checked keys, a thread.
* A log of 50 MB: written, sealed, and read from its start to its end; how much the process grows
  while it does that. The same part of it out of rows and out of the object, in the same run.
"""

import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

from report import Bar, info, report

from pipecd_controlplane.ops.objects import seal_logs
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_wire.model.logblock_pb2 import LogBlock

OBJECTS = 300
SMALL = 20_000
LINE = "x" * 80
LINES_OF_CHUNK = 500
CHUNKS = 1250
"""Of 500 lines with 80 characters: 50 MB of text."""
ROUNDS = 40
PROJECT = "default"


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as name:
        folder = Path(name)
        blobs = FolderBlobs(folder / "blobs")
        await blobs.open()
        await measure_objects(folder, blobs)
        config = SqliteFolder(folder=folder / "data")
        async with open_database(config, on_commit=lambda _changes: None) as database:
            await measure_logs(stores(database, lambda: int(time.time()), blobs=blobs), blobs)


async def measure_objects(folder: Path, blobs: FolderBlobs) -> None:
    """Puts and gets beside bare files, in turns, so that both have the same machine."""
    data = os.urandom(SMALL)
    (folder / "bare").mkdir()
    puts, bare_puts, gets, bare_gets = [], [], [], []
    for number in range(OBJECTS):
        bare = folder / "bare" / str(number)
        bare_puts.append(await timed(asyncio.to_thread(write_bare, bare, data)))
        key = f"bench/{number}"
        puts.append(await timed(blobs.put(key, data)))
        bare_gets.append(await timed(asyncio.to_thread(bare.read_bytes)))
        gets.append(await timed(blobs.get(key)))
    put, bare_put, get, bare_get = (
        statistics.median(each) for each in (puts, bare_puts, gets, bare_gets)
    )
    info("blob-put-20kB", put * 1000, "ms")
    report("blob-put-to-bare-file", put / bare_put, "x", Bar("<=", 3))
    info("blob-get-20kB", get * 1000, "ms")
    report("blob-get-to-bare-file", get / bare_get, "x", Bar("<=", 3))


def write_bare(path: Path, data: bytes) -> None:
    """The least that keeps a file: written, synced, and its name synced."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    number = os.open(path.parent, os.O_RDONLY)
    os.fsync(number)
    os.close(number)


async def measure_logs(kept: Stores, blobs: FolderBlobs) -> None:
    rows, sealed = (LogKey(deployment_id="d", stage_id=name) for name in ("rows", "sealed"))
    followed = LogKey(deployment_id="d", stage_id="followed")
    await write_log(kept, followed, 20)
    await read_whole(kept, followed)  # whatever is loaded once is not growth
    before = peak_mib()
    await write_and_follow(kept, sealed)
    report("log-50MB-followed-while-written-growth", peak_mib() - before, "MiB", Bar("<=", 40))
    began = time.perf_counter()
    if await seal_logs(kept, blobs) < 1:
        raise AssertionError("nothing was sealed")
    info("log-50MB-sealed-in", time.perf_counter() - began, "s")
    report("log-50MB-sealing-growth", peak_mib() - before, "MiB", Bar("<=", 40))
    began = time.perf_counter()
    if await read_whole(kept, sealed) != CHUNKS * LINES_OF_CHUNK:
        raise AssertionError("lines are missing")
    info("sealed-log-50MB-read-in", time.perf_counter() - began, "s")
    report("sealed-log-50MB-read-growth", peak_mib() - before, "MiB", Bar("<=", 40))
    await write_log(kept, rows, CHUNKS, completed=False)
    took: dict[str, list[float]] = {"rows": [], "sealed": []}
    for number in range(ROUNDS):
        first = 1 + number * (CHUNKS * LINES_OF_CHUNK // ROUNDS)
        for key in (rows, sealed):
            reading = kept.log_lines.read_range(PROJECT, key, first_line=first, count=1000)
            took[key.stage_id].append(await timed(reading))
    of_rows, of_object = (statistics.median(took[name]) for name in ("rows", "sealed"))
    info("log-1000-lines-of-rows", of_rows * 1000, "ms")
    info("log-1000-lines-sealed", of_object * 1000, "ms")
    report("log-1000-lines-sealed-to-rows", of_object / of_rows, "x", Bar("<=", 3))


async def write_log(kept: Stores, key: LogKey, chunks: int, *, completed: bool = True) -> None:
    for number in range(chunks):
        await kept.stage_logs.append(
            PROJECT, key, make_blocks(number), completed=completed and number == chunks - 1
        )


async def write_and_follow(kept: Stores, key: LogKey) -> None:
    """Reads each part of a log as soon as it is there, as a person who follows it does."""
    position = count = 0
    for number in range(CHUNKS):
        blocks = make_blocks(number)
        await kept.stage_logs.append(PROJECT, key, blocks, completed=number == CHUNKS - 1)
        part = await kept.stage_logs.part(PROJECT, key, after=position)
        position, count = part.position, count + len(part.blocks)
    if count != CHUNKS * LINES_OF_CHUNK:
        raise AssertionError(f"{count} lines were followed")


async def read_whole(kept: Stores, key: LogKey) -> int:
    position = count = 0
    while True:
        part = await kept.stage_logs.part(PROJECT, key, after=position)
        position, count = part.position, count + len(part.blocks)
        if part.at_end:
            return count


def make_blocks(number: int) -> list[LogBlock]:
    start = number * LINES_OF_CHUNK
    return [
        LogBlock(index=start + line, log=f"{start + line:08d} {LINE}"[:80], created_at=1)
        for line in range(LINES_OF_CHUNK)
    ]


async def timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    asyncio.run(main())
