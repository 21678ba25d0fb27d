# SPDX-License-Identifier: Apache-2.0
"""Plugins that outlived their piped are ended, and nobody else is."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipecd_piped.programs.orphans import OrphanReaper, boot_id, pid_namespace
from pipecd_runtime.orphans import start_of
from pipecd_test_support.plugin_world import PluginWorld, wait_for

LIMIT = 20
HOSTING = Path(__file__).parent / "programs" / "hosting.py"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a shell command as the leader of a session, and wait until it says a word."""
    processes: list[subprocess.Popen[str]] = []

    def begin(script: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait(LIMIT)
        assert process.stdout is not None
        process.stdout.close()


def record(data: Path, pid: int, **other: str) -> None:
    about = {"plugin": "odd", "started": str(start_of(pid)), "boot": boot_id(), **other}
    folder = data / "processes"
    folder.mkdir(exist_ok=True)
    (folder / str(pid)).write_text(json.dumps(about))


async def test_an_orphan_is_asked_to_end_and_forgotten(tmp_path: Path, start: Start) -> None:
    process = start("echo up; exec sleep 600")
    record(tmp_path, process.pid)

    async with asyncio.timeout(LIMIT):
        await OrphanReaper(tmp_path).sweep()

    assert process.wait(LIMIT) == -15
    assert names_in(tmp_path) == []


async def test_one_that_does_not_listen_is_killed_with_its_group(
    tmp_path: Path, start: Start
) -> None:
    process = start("trap '' TERM; sleep 601 & echo $!; wait")
    child = children_of(process.pid)
    record(tmp_path, process.pid)

    async with asyncio.timeout(LIMIT):
        await OrphanReaper(tmp_path).sweep()

    assert process.wait(LIMIT) == -9
    assert child
    assert not any(start_of(each) for each in child)


async def test_what_its_leader_left_in_the_group_is_ended(tmp_path: Path, start: Start) -> None:
    process = start("(trap '' TERM; sleep 602 & wait) & echo up; wait")
    child = children_of(process.pid)
    record(tmp_path, process.pid)

    async with asyncio.timeout(LIMIT):
        await OrphanReaper(tmp_path).sweep()

    assert process.wait(LIMIT) == -15
    assert child
    assert not any(start_of(each) for each in child)


@pytest.mark.parametrize("other", [{"started": "1"}, {"boot": "another"}, {"started": ""}])
async def test_a_process_that_only_has_its_pid_is_left_alone(
    tmp_path: Path, start: Start, other: dict[str, str]
) -> None:
    process = start("echo up; exec sleep 600")
    record(tmp_path, process.pid, **other)

    await OrphanReaper(tmp_path).sweep()

    assert process.poll() is None
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"started": "1"}', "\x00"])
async def test_a_record_that_is_not_whole_is_forgotten(
    tmp_path: Path, start: Start, text: str
) -> None:
    process = start("echo up; exec sleep 600")
    folder = tmp_path / "processes"
    folder.mkdir()
    (folder / str(process.pid)).write_text(text)
    (folder / f"{process.pid}.new").write_text(text)

    await OrphanReaper(tmp_path).sweep()

    assert process.poll() is None
    assert names_in(tmp_path) == []


async def test_a_process_that_has_ended_is_only_forgotten(tmp_path: Path, start: Start) -> None:
    process = start("echo up; exec sleep 600")
    record(tmp_path, process.pid)
    process.kill()
    process.wait(LIMIT)

    await OrphanReaper(tmp_path).sweep()

    assert names_in(tmp_path) == []


async def test_a_process_is_on_record_until_nothing_of_it_is_left(
    tmp_path: Path, start: Start
) -> None:
    process = start("echo up; exec sleep 600")
    reaper = OrphanReaper(tmp_path)

    reaper.record("odd", process.pid)

    [file] = (tmp_path / "processes").iterdir()
    assert json.loads(file.read_text()) == {
        "plugin": "odd",
        "started": start_of(process.pid),
        "boot": boot_id(),
        "namespace": pid_namespace(),
    }
    await reaper.end("other", others={"odd"})
    assert names_in(tmp_path) == [str(process.pid)]
    await reaper.end("odd", others={"other"})
    assert names_in(tmp_path) == []
    assert process.wait(LIMIT) == -15


def test_a_folder_that_takes_nothing_keeps_no_plugin_from_running(
    tmp_path: Path, start: Start
) -> None:
    process = start("echo up; exec sleep 600")
    (tmp_path / "processes").write_text("a file")

    OrphanReaper(tmp_path).record("odd", process.pid)


async def test_a_host_has_its_plugins_on_record_and_sweeps_before_it_starts_them(
    world: PluginWorld, start: Start
) -> None:
    process = start("echo up; exec sleep 600")
    folder = world.folder / "data" / "processes"
    async with world.host(world.odd()) as host:
        await host.plugins["odd"].wait_ready(LIMIT)
        [file] = folder.iterdir()
        assert start_of(int(file.name))
    assert list(folder.iterdir()) == []

    record(world.folder / "data", process.pid)
    async with world.host(world.odd()) as host:
        assert process.poll() == -15
        await host.plugins["odd"].wait_ready(LIMIT)


async def test_the_plugin_of_a_killed_piped_is_gone_when_the_next_one_starts(
    world: PluginWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W3, where the system cannot tell a plugin that its piped has died."""
    config = world.odd(manners="go")
    data = world.folder / "data"
    # Without setpriv, and the odd plugin does not see to it itself.
    monkeypatch.setenv("PATH", str(world.folder))
    piped = await asyncio.create_subprocess_exec(
        sys.executable, str(HOSTING), config.url, str(world.record("odd")), str(data)
    )
    await wait_for(lambda: world.facts(about="reached piped"))
    [[_, _, _, pid, _]] = world.facts(about="started")
    await wait_for((data / "processes" / str(pid)).exists)
    piped.kill()
    await piped.wait()
    assert start_of(pid), "it must have outlived its piped"

    async with world.host(world.odd(manners="go")):
        assert not start_of(pid)


def names_in(data: Path) -> list[str]:
    return [each.name for each in (data / "processes").iterdir()]


def children_of(pid: int) -> list[int]:
    found, more = [], [pid]
    while more:
        parent = more.pop()
        words = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        found += [int(each) for each in words]
        more += [int(each) for each in words]
    return found
