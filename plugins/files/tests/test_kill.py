# SPDX-License-Identifier: Apache-2.0
"""kill -9 at any instruction: the old release or the new one, and the next try ends it."""

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import example_deployment, executable, start_plugin
from pipecd_test_support.files_lab import FilesLab
from pipecd_wire.rpc import CallError

PROGRAM = Path(__file__).with_name("killed.py")
POINTS = 150
OLD = {f"sub-{number % 3}/file-{number}": "old" for number in range(8)}
NEW = {f"sub-{number % 4}/file-{number}": "new" for number in range(9)}


class Deaths:
    """The program that forks processes which kill themselves."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, limit: int, given: dict[str, Any]) -> int:
        """Do something; the instructions that it took, -1 when it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**given, "limit": limit}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer not in {"", "failed"}
        return -1 if answer == "killed" else int(answer)


@pytest.fixture
def deaths() -> Iterator[Deaths]:
    made = Deaths()
    try:
        yield made
    finally:
        made.process.communicate(timeout=30)


def leftovers(site: Path) -> list[str]:
    """What is there that a finished deployment does not leave."""
    names = {path.name for path in (site / "releases").iterdir()} - {".lock"}
    whole = {name for name in names if not name.startswith(".") and f"{name}.json" in names}
    return sorted(names - whole - {f"{name}.json" for name in whole})


def order(tmp_path: Path, site: Path, number: int, what: str = "rollout") -> dict[str, Any]:
    return {
        "what": what,
        "folder": str(tmp_path / ("old" if number % 2 or what == "rollback" else "new")),
        "site": str(site),
        "deployment": f"{number:08x}-deployment",
        "commit": f"{number:040x}",
        "at": 1_704_196_800 + number,
    }


@pytest.mark.parametrize("what", ["rollout", "rollback"])
def test_a_death_at_any_instruction_leaves_one_whole_release_and_is_made_good(
    make: FilesLab, deaths: Deaths, tmp_path: Path, what: str
) -> None:
    """Two releases before it, and room for two: so that the old one is removed as well."""
    make.write(tmp_path / "old", OLD)
    make.write(tmp_path / "new", NEW)
    before = tmp_path / "before"
    for number in (1, 2, 3) if what == "rollout" else (1, 2):
        deaths.run(0, order(tmp_path, before, number))
    if what == "rollback":  # of a release that has to be made anew
        spoilt = next((before / "releases").glob("*-00000001/sub-0/file-0"))
        spoilt.write_text("spoilt")
        first = make.deployed(before)
        wanted = OLD
    else:
        first, wanted = OLD, NEW
    given = order(tmp_path, before, 4 if what == "rollout" else 2, what)
    trial = tmp_path / "trial"
    shutil.copytree(before, trial, symlinks=True)
    total = deaths.run(0, {**given, "site": str(trial)})
    assert make.deployed(trial) == wanted
    chosen = random.Random(7).sample(range(2, total - 1), POINTS)  # noqa: S311

    seen = set()
    for point in (*chosen, 1, total - 1):
        site = tmp_path / f"killed-{point}"
        shutil.copytree(before, site, symlinks=True)
        here = {**given, "site": str(site)}

        assert deaths.run(point, here) == -1
        between = make.deployed(site)
        assert between in (first, wanted), f"a mixture after instruction {point}"
        seen.add(between == wanted)
        deaths.run(0, here)

        assert make.deployed(site) == wanted
        assert leftovers(site) == []
        shutil.rmtree(site)

    assert seen == {True, False}, "the points stand on both sides of the switch"


@pytest.mark.parametrize("seed", range(6))
async def test_a_killed_plugin_is_continued_by_the_next_one(
    make: FilesLab, tmp_path: Path, seed: int
) -> None:
    """The whole executable, killed from outside while it copies."""
    folder = make.write(tmp_path / "commit", {f"d{n % 20}/f{n}": "x" * 200 for n in range(2_000)})
    entry = {
        "config": {"flush": False},
        "deployTargets": [{"name": "a", "config": {"path": str(tmp_path / "a")}}],
    }
    deployment = example_deployment()
    deployment.deploy_targets_by_plugin["files"].deploy_targets.append("a")
    command = [executable("pipecd-plugin-files")]
    work = tmp_path / "a" / "releases"

    async with FakePiped() as piped:
        async with (
            start_plugin(piped, command, name="files", entry=entry) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            running = tasks.create_task(
                _lost(plugin.execute("FILES_SYNC", directory=folder, deployment=deployment))
            )
            async with asyncio.timeout(30):
                while _files(work) < seed * 350 and not running.done():  # noqa: ASYNC110
                    await asyncio.sleep(0)
            plugin.process.kill()
        assert not (tmp_path / "a" / "current").is_symlink() or len(
            make.deployed(tmp_path / "a")
        ) == len(list(folder.rglob("f*")))

        async with start_plugin(piped, command, name="files", entry=entry) as plugin:
            answer = await plugin.execute("FILES_SYNC", directory=folder, deployment=deployment)

    assert answer.status == 2
    assert len(make.deployed(tmp_path / "a")) == 2_000
    assert leftovers(tmp_path / "a") == []


def _files(work: Path) -> int:
    return sum(1 for _ in work.glob(".new-*/*/*")) if work.exists() else 0


async def _lost(call: Awaitable[object]) -> None:
    try:
        await call
    except CallError:
        return
