# SPDX-License-Identifier: Apache-2.0
"""Stage logs through real processes: whole and in order whatever dies, and bounded in a flood."""

import asyncio
import contextlib
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import stream

LIMIT = 60


def script(run: str) -> dict[str, Any]:
    return {"name": "SCRIPT_RUN", "with": {"run": run}}


def waits_for(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.05; done"


async def until(holds: Callable[[], bool], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.02)


def said(site: PipedSite, event: str) -> bool:
    return any(each["event"] == event for each in site.events())


async def test_lines_that_only_a_killed_piped_had_are_passed_on_by_the_next(
    own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite]
) -> None:
    """The stage is over and is not run again: nobody but piped has its lines any more."""
    site = site_of(own_server)
    gate = site.folder / "gate"
    stages = [
        script(f"echo began > {site.record}\n{waits_for(gate)}\nseq 1 5000"),
        {"name": "DUMMY_PRIMARY_ROLLOUT", "with": {"record": str(site.record)}},
    ]
    commit = site.commit_application("web", stages)
    site.configure("scriptrun", "dummy")
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("web", commit)
        await until(lambda: site.records() == ["began"], site)

    own_server.stop()
    gate.touch()
    await until(lambda: f"DUMMY_PRIMARY_ROLLOUT {commit}" in site.records(), site)
    site.signal(signal.SIGKILL)
    await site.ended()
    own_server.start()
    site.start()

    async with site.client() as client:
        ended = await client.completed(deployment_id)
        lines = await client.log(ended, ended.stages[0])
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert [line for line in lines if line.isdigit()] == [str(n) for n in range(1, 5001)]


def limit_files(pid: int, size: int) -> None:
    """Let no file of a process grow beyond so many bytes: the disk is full for it."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


async def test_a_full_disk_is_named_and_loses_no_line(site: PipedSite, client: SiteClient) -> None:
    """The control plane takes them directly meanwhile; later the disk is used again."""
    first, second, third = (site.folder / name for name in ("first", "second", "third"))
    run = f"{waits_for(first)}\nseq -w 1 20000\n{waits_for(second)}\nseq -w 20001 20010\n"
    commit = site.commit_application("web", [script(f"{run}{waits_for(third)}\necho end")])
    site.configure("scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await client.stage_running(deployment_id, 0)

    # piped's own log has room still; a file with a batch of lines has not.
    limit_files(site.pid, site.log.stat().st_size + 8_000)
    first.touch()
    await until(lambda: said(site, "stage_log.disk_fault"), site)
    limit_files(site.pid, resource.RLIM_INFINITY)
    second.touch()
    await until(lambda: said(site, "stage_log.disk_back"), site)
    third.touch()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    lines = [line for line in await client.log(ended, ended.stages[0]) if line.isdigit()]
    assert lines == [f"{n:05}" for n in range(1, 20011)]
    [fault] = [each for each in site.events() if each["event"] == "stage_log.disk_fault"]
    assert fault["hint"].startswith("free or repair the disk")


def highest_memory(pid: int) -> int:
    """The most that a process has had in memory so far, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def plugins(pid: int) -> dict[str, int]:
    """The plugins of a piped; other processes below it come and go."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                about = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
                if int(about[1]) == pid and "/pipecd-plugin-" in command:
                    found[f"plugin {entry.name}"] = int(entry.name)
    return found


LINE = 40_000_000
GARBAGE = 1_000_000
SHORT = 20_000
MOST_GROWTH = 64 * 1024 * 1024


async def test_a_flood_is_bounded_in_the_memory_of_everybody(
    own_server: ServerProcess, site_of: Callable[[ServerProcess], PipedSite]
) -> None:
    """One line of 40 MB, a megabyte of noise, and many short lines."""
    site = site_of(own_server)
    gate = site.folder / "gate"
    flood = (
        f"head -c {LINE} /dev/zero | tr '\\0' x\necho\n"
        f"head -c {GARBAGE} /dev/urandom\necho\nseq -w 1 {SHORT}"
    )
    commit = site.commit_application("web", [script(f"{waits_for(gate)}\n{flood}")])
    site.configure("scriptrun")
    site.start()
    async with site.client() as client:
        deployment_id = await client.deploy("web", commit)
        stage = await client.stage_running(deployment_id, 0)
        pids = {"piped": site.pid, "server": own_server.pid}
        pids |= plugins(site.pid)
        assert len(pids) == 3
        before = {name: highest_memory(pid) for name, pid in pids.items()}

        gate.touch()
        long, short, longest = 0, [], 0
        request = own.FollowStageLogRequest(deployment_id=deployment_id, stage_id=stage.id)
        async with asyncio.timeout(LIMIT):
            async for part in stream(client.deployments.FollowStageLog, request):
                for block in part.blocks:
                    longest = max(longest, len(block.log))
                    if not block.log.strip("x"):
                        long += len(block.log)
                    elif block.log.isdigit() and len(block.log) == 5:
                        short.append(block.log)
        after = {name: highest_memory(pid) for name, pid in pids.items()}
        ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert long >= LINE
    assert longest <= 64 * 1024
    assert short[-SHORT:] == [f"{n:05}" for n in range(1, SHORT + 1)]
    grown = {name: after[name] - before[name] for name in pids}
    assert max(grown.values()) < MOST_GROWTH, grown
