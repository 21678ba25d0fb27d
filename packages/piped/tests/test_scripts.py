# SPDX-License-Identifier: Apache-2.0
"""Records of scripts go with their deployment, never while a script lives."""

import asyncio
import fcntl
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipecd_model.errors import NotFoundError, UnavailableError
from pipecd_piped.scripts.records import ScriptRecords, forget
from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 20


def record(scripts: Path, deployment_id: str) -> Path:
    folder = scripts / deployment_id / "stage-0.0"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "started").write_text("1 1")
    return folder


def ended(deployment_id: str) -> pb.Deployment:
    return pb.Deployment(id=deployment_id, status=pb.DEPLOYMENT_SUCCESS)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(0.01)


class Agent:
    """What the records need of the rest of piped."""

    def __init__(self, scripts: Path) -> None:
        self.scripts = scripts
        self.safe = asyncio.Event()
        self.safe.set()
        self.waited_for: list[str] = []
        self.running: list[str] = []
        self.known: dict[str, pb.Deployment | Exception] = {}
        self.asked: list[str] = []
        self.records = ScriptRecords(
            scripts,
            kept=self.kept,
            stored=self.stored,
            running=lambda: self.running,
            longest_pause_seconds=0.2,
        )

    async def kept(self, deployment: pb.Deployment) -> None:
        self.waited_for.append(deployment.id)
        await self.safe.wait()

    async def stored(self, deployment_id: str) -> pb.Deployment:
        self.asked.append(deployment_id)
        answer = self.known.get(deployment_id, NotFoundError("no such deployment"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(self.records.run())
            yield
            working.cancel()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_the_records_of_one_deployment_are_removed(tmp_path: Path) -> None:
    record(tmp_path, "d1")
    record(tmp_path, "d2")

    assert forget(tmp_path, "d1")

    assert names_in(tmp_path) == ["d2"]


def test_those_of_a_script_that_still_runs_stay(tmp_path: Path) -> None:
    folder = record(tmp_path, "d1")
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not forget(tmp_path, "d1")
        assert (folder / "started").exists()

    assert forget(tmp_path, "d1")


@pytest.mark.parametrize("name", ["../precious", "..", "", ".", "precious/../../precious"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    outside = record(tmp_path, "precious")
    scripts = tmp_path / "scripts"
    scripts.mkdir()

    assert forget(scripts, name)

    assert outside.exists()
    assert scripts.exists()


async def test_records_go_when_the_end_is_safe_and_not_before(agent: Agent) -> None:
    record(agent.scripts, "d1")
    agent.known["d1"] = pb.Deployment(id="d1", status=pb.DEPLOYMENT_RUNNING)
    agent.safe.clear()
    async with agent.at_work():
        agent.records.on_completed(ended("d1"))
        await until(lambda: agent.waited_for == ["d1"])
        assert names_in(agent.scripts) == ["d1"]

        agent.safe.set()

        await until(lambda: names_in(agent.scripts) == [])


async def test_a_script_that_goes_on_after_its_deployment_keeps_its_record(agent: Agent) -> None:
    async with agent.at_work():
        folder = record(agent.scripts, "d1")
        record(agent.scripts, "d2")
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            agent.records.on_completed(ended("d1"))
            agent.records.on_completed(ended("d2"))
            await until(lambda: names_in(agent.scripts) == ["d1"])
            assert (folder / "started").exists()

        await until(lambda: names_in(agent.scripts) == [])


async def test_what_an_earlier_piped_left_goes_when_its_deployment_is_over(agent: Agent) -> None:
    for name in ("open", "over", "unheard-of", "x" * 64):
        record(agent.scripts, name)
    agent.known["open"] = pb.Deployment(id="open", status=pb.DEPLOYMENT_RUNNING)
    agent.known["over"] = ended("over")
    async with agent.at_work():
        await until(lambda: "over" not in names_in(agent.scripts))
        await until(lambda: "unheard-of" in agent.asked)

    assert names_in(agent.scripts) == ["open", "unheard-of", "x" * 64]


async def test_a_control_plane_that_is_away_is_asked_again(agent: Agent) -> None:
    record(agent.scripts, "d1")
    agent.known["d1"] = UnavailableError("not now")
    async with agent.at_work():
        await until(lambda: len(agent.asked) > 1)
        assert names_in(agent.scripts) == ["d1"]

        agent.known["d1"] = ended("d1")

        await until(lambda: names_in(agent.scripts) == [])


async def test_a_deployment_that_runs_here_keeps_its_records(agent: Agent) -> None:
    """Whatever the control plane says: another instance may have ended it there."""
    record(agent.scripts, "d1")
    record(agent.scripts, "d2")
    agent.running = ["d1"]
    agent.known = {"d1": ended("d1"), "d2": ended("d2")}
    async with agent.at_work():
        await until(lambda: names_in(agent.scripts) == ["d1"])
        agent.running = []
        await until(lambda: names_in(agent.scripts) == [])


async def test_records_that_cannot_be_removed_are_told_once_and_tried_again(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (agent.scripts / "elsewhere").mkdir()
    async with agent.at_work():
        # A link is not followed, nor removed: it is none of ours.
        (agent.scripts / "d1").symlink_to(agent.scripts / "elsewhere")
        agent.records.on_completed(ended("d1"))
        await until(lambda: bool(caplog.records))
        record(agent.scripts, "d2")
        agent.records.on_completed(ended("d2"))
        await until(lambda: not (agent.scripts / "d2").exists())
        (agent.scripts / "d1").unlink()
        record(agent.scripts, "d1")
        await until(lambda: not (agent.scripts / "d1").exists())

    told = [each.getMessage() for each in caplog.records]
    assert told == ["script.records_not_removed"]


async def test_a_piped_that_stops_takes_the_records_of_what_has_just_ended_along(
    agent: Agent,
) -> None:
    """They may hold what a script has printed, secrets included."""
    record(agent.scripts, "d1")
    lock = record(agent.scripts, "d2") / "lock"
    agent.records.on_completed(ended("d1"))
    agent.records.on_completed(ended("d2"))
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await agent.records.settle(0.5)
        assert names_in(agent.scripts) == ["d2"]

    await agent.records.settle(LIMIT)

    assert names_in(agent.scripts) == []
