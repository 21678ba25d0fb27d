# SPDX-License-Identifier: Apache-2.0
"""A sync of 10,000 small files by the plugin `files`, as a ratio to `cp -r` of the same folder.

Both write to the same file system and take turns; the ratio is that of the medians. The sync also
takes a digest of every file, writes its record and switches the link. Flushing to disk is measured
apart, beside `cp -r` and `sync -f`, which is what it takes to be sure with `cp`.

What was written stays until the end. ext4 without a journal passes over inodes that were deleted in
the last minutes whenever it makes a file: deleting after each turn slowed the next ones, those of
cp or those of the sync as it happened, and the ratio said nothing.
"""

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pipecd_plugin_files.plugin import Files
from report import Bar, info, report

from pipecd_sdk import StageStatus, replace
from pipecd_sdk.testing import StageHarness, deploy_target, example_deployment

FILES = 10_000
TURNS = 7


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        source = base / "source"
        for number in range(FILES):
            file = source / f"folder-{number % 100}" / f"file-{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"line {number}\n" * 20)
        for flush in (False, True):
            measure(base, source, flush=flush)


def measure(base: Path, source: Path, *, flush: bool) -> None:
    turns: dict[str, list[float]] = {"cp": [], "sync": []}
    for turn in range(TURNS):
        copied, directory = (base / f"{name}-{flush}-{turn}" for name in ("copied", "directory"))
        turns["cp"].append(timed(lambda: copy(source, copied, flush=flush)))  # noqa: B023
        turns["sync"].append(timed(lambda: sync(source, directory, turn, flush=flush)))  # noqa: B023
    how = "flushed to disk" if flush else "not flushed"
    cp, ours = statistics.median(turns["cp"]), statistics.median(turns["sync"])
    info(f"files: cp -r of {FILES} files, {how}", cp * 1000, "ms")
    info(f"files: sync of {FILES} files, {how}", ours * 1000, "ms")
    report(f"files: sync / cp -r, {how}", ours / cp, "x", Bar("<=", 2.0))


def copy(source: Path, to: Path, *, flush: bool) -> None:
    subprocess.run(["cp", "-r", source, to], check=True)
    if flush:
        subprocess.run(["sync", "-f", to], check=True)


def sync(source: Path, to: Path, turn: int, *, flush: bool) -> None:
    harness = StageHarness(
        Files(),
        config={"flush": flush},
        directory=source,
        targets=[deploy_target(Files, "a", {"path": str(to)})],
        deployment=replace(example_deployment(), id=f"{turn:08}-deployment"),
    )
    result = asyncio.run(harness.run("FILES_SYNC"))
    assert result.status is StageStatus.SUCCESS, result.reason
    assert (to / "current" / "folder-7" / "file-7.txt").exists()


def timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
