# SPDX-License-Identifier: Apache-2.0
"""What a plugin's process has started is found, wherever it went, and nothing else is."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipecd_piped.plugins import PluginLimits, PluginLostError
from pipecd_piped.programs.orphans import OrphanReaper
from pipecd_runtime.orphans import MARK_VARIABLE, Mark, new_mark, start_of
from pipecd_test_support.plugin_world import PluginWorld

LIMIT = 60
AS_NOBODY = Path(__file__).parent / "programs" / "ending_as_nobody.py"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a shell command as the leader of a session, and wait until it says a word."""
    processes: list[subprocess.Popen[str]] = []

    def begin(script: str, mark: Mark | None = None) -> "subprocess.Popen[str]":
        environment = {**os.environ, **({MARK_VARIABLE: str(mark)} if mark else {})}
        process = subprocess.Popen(
            ["sh", "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment,
        )
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield begin
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT)
        assert process.stdout is not None
        process.stdout.close()


def is_alive(process: "subprocess.Popen[str]") -> bool:
    return process.poll() is None


async def test_what_carries_the_mark_is_ended_also_without_a_record(
    tmp_path: Path, start: Start
) -> None:
    """A disk that takes nothing, or a piped that died before it could write."""
    marked = start("echo up; exec sleep 600", new_mark(tmp_path, "odd"))

    await OrphanReaper(tmp_path).sweep()

    assert marked.wait(LIMIT) == -15


async def test_what_shares_the_session_of_a_marked_process_is_ended_with_it(
    tmp_path: Path, start: Start
) -> None:
    marked = start("env -i sleep 600 & echo $!; wait", new_mark(tmp_path, "odd"))
    [child] = children_of(marked.pid)

    await OrphanReaper(tmp_path).sweep()

    assert marked.wait(LIMIT) == -15
    assert not start_of(child)


@pytest.mark.parametrize(
    "mark",
    [
        Mark(folder="another", plugin="odd", start="1"),
        Mark(folder="another", plugin="a:b%", start="1"),
        None,
    ],
)
async def test_what_carries_another_mark_or_none_is_left_alone(
    tmp_path: Path, start: Start, mark: Mark | None
) -> None:
    other = start("echo up; exec sleep 600", mark)

    await OrphanReaper(tmp_path).sweep()

    assert is_alive(other)


async def test_what_another_piped_left_whose_folder_has_the_same_path_is_left_alone(
    tmp_path: Path, start: Start
) -> None:
    """As in two containers that see each other's processes: there the paths are often the same."""
    folder = tmp_path / "data"
    folder.mkdir()
    other = start("echo up; exec sleep 600", new_mark(folder, "odd"))
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()

    await OrphanReaper(folder).sweep()
    assert is_alive(other)

    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    await OrphanReaper(tmp_path / "link").sweep()
    assert other.wait(LIMIT) == -15


async def test_only_what_belongs_to_no_other_plugin_is_ended_with_one(
    tmp_path: Path, start: Start
) -> None:
    """A plugin may have had another name: what is left of that one must not run beside it."""
    mine, renamed, others = (
        start("echo up; exec sleep 600", new_mark(tmp_path, name)) for name in ("a", "old", "b:c")
    )

    await OrphanReaper(tmp_path).end("a", others={"b:c"})

    assert mine.wait(LIMIT) == renamed.wait(LIMIT) == -15
    assert is_alive(others)


async def test_what_its_dead_leader_left_is_ended_by_the_record(
    tmp_path: Path, start: Start
) -> None:
    leader = start("env -i sh -c 'trap \"\" TERM; sleep 600' & echo $!; read never")
    child = children_of(leader.pid)
    reaper = OrphanReaper(tmp_path)
    reaper.record("odd", leader.pid)
    leader.kill()
    leader.wait(LIMIT)
    assert all(map(start_of, child))

    await reaper.end("odd", others=())

    assert not any(map(start_of, child))


async def test_a_session_that_got_the_number_of_a_dead_leader_is_left_alone(
    tmp_path: Path, start: Start
) -> None:
    """A number is given away again only when nobody of the old session is left."""
    other = start("sleep 600 & echo $!; wait")
    folder = tmp_path / "processes"
    reaper = OrphanReaper(tmp_path)
    reaper.record("odd", other.pid)
    record = folder / str(other.pid)
    before = start_of(other.pid) - 1
    record.write_text(record.read_text().replace(str(start_of(other.pid)), str(before)))

    await reaper.end("odd", others=())

    assert is_alive(other)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts what others may not end")
def test_what_cannot_be_ended_is_named_and_stays_on_record(start: Start) -> None:
    stubborn = start("echo up; exec sleep 600")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        OrphanReaper(Path(folder)).record("odd", stubborn.pid)

        done = subprocess.run(
            [sys.executable, str(AS_NOBODY), folder, "odd"],
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT,
        )

        assert done.stdout.startswith(
            "what an earlier process of the plugin 'odd' has started cannot be ended:"
            f" {stubborn.pid} (sleep)"
        )
        assert [each.name for each in (Path(folder) / "processes").iterdir()] == [str(stubborn.pid)]
    assert is_alive(stubborn)


async def test_a_plugin_that_is_not_managed_and_lost_a_call_is_replaced(
    world: PluginWorld, quick: PluginLimits
) -> None:
    """It may still run the stage: called again, it would begin it a second time beside that."""
    async with world.host(world.odd(manners="go"), limits=quick) as host:
        plugin = host.plugins["odd"]
        await plugin.wait_ready(LIMIT)

        with pytest.raises(PluginLostError):
            await plugin.execute_stage(world.run_input("VANISH"))

        [[_, _, _, first, _]] = world.facts(about="started")
        assert not start_of(first)
        async with asyncio.timeout(LIMIT):
            await plugin.wait_ready(LIMIT)
        assert len(world.facts(about="started")) == 2


def children_of(pid: int) -> list[int]:
    found, more = [], [pid]
    while more:
        parent = more.pop()
        words = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        found += [int(each) for each in words]
        more += [int(each) for each in words]
    return found
