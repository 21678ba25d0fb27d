# SPDX-License-Identifier: Apache-2.0
"""`pipecd quickstart --check`: types what is suggested to a new user and prints what was seen.

Every row of the table is read back from what the scripts wrote themselves and from the public API.
"""

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from pipecd_model.deployment import is_completed
from pipecd_model.errors import TimedOutError
from pipecd_quickstart import example
from pipecd_quickstart.session import QuickstartSession
from pipecd_quickstart.suggestions import (
    APPROVE,
    BREAK,
    CANCEL,
    CHANGE,
    DRIFT,
    LOOK,
    MEND,
    PUBLISH,
    SEE_DRIFT,
    STOP,
    choose_suggestions,
    find_pipectl,
    is_waiting_for_approval,
)
from pipecd_runtime import process as child
from pipecd_runtime.process import own, word
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call, stream

STEP_LIMIT_SECONDS: Final = 60.0
"""Seconds for any one step; far more than it takes, so that a slow machine passes too."""

EXIT_CODES: Final = {SEE_DRIFT: 1}
"""What commands end with, if not with 0: a difference is 1, as with `diff`."""

SLEEPER: Final = """\
echo $$ > {out}/sleeper.pid
sleep 300
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step of the check: what was expected, and what was seen."""

    step: str
    expected: str
    seen: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.expected == self.seen


class JourneyCheck:
    """Types what is suggested to a new user, and records what was seen at each step."""

    def __init__(self, session: QuickstartSession) -> None:
        self._session = session
        self._folder = session.folder
        self._typed: dict[str, str] = {}
        """By command: what it printed."""
        self._verify = {
            PUBLISH: self._verify_publish,
            LOOK: self._verify_look,
            CHANGE: self._verify_change,
            BREAK: self._verify_rollback,
            MEND: self._verify_change,
            CANCEL: self._verify_cancel,
            DRIFT: self._verify_sync,
        }
        self.rows: list[Row] = []

    async def walk(self) -> None:
        await self._deploy()
        for suggestion in choose_suggestions(self._folder, is_waiting=True):
            started = time.monotonic()
            for command in suggestion.commands:
                await self._wait_before(command)
                await self._type(command)
            await self._verify[suggestion](started)
        await self._website()
        await self._cancel_running()

    async def _wait_before(self, command: str) -> None:
        """Waits as a person does, for what the first terminal shows."""
        if command in {APPROVE, STOP}:
            deployment_id = await self._deployment_of("hello", example.commit_hash(self._folder))
            await self._wait_until(deployment_id, is_waiting_for_approval)
        elif command == SEE_DRIFT:
            await self._wait_for_sync_status("OUT_OF_SYNC")

    async def _type(self, command: str) -> None:
        """Types a command into a shell, in the example repository."""
        started = time.monotonic()
        shell = (*own("sh", "-c"), word(f"{find_pipectl(self._folder)}\n{command}"))
        process = await child.start(
            shell,
            env=child.operator_environment(),
            cwd=self._folder.repository,
            stdout=child.PIPE,
            stderr=child.STDOUT,
        )
        async with _limit(f"{command!r} has not ended"):
            output, _ = await process.communicate()
        self._typed[command] = printed = output.decode(errors="replace")
        expected = f"exit {EXIT_CODES.get(command, 0)}"
        seen = f"exit {process.returncode}"
        seen = seen if seen == expected else f"{seen}: {printed.strip()}"
        self._row(f"$ {command}", expected, seen, started)

    async def _deploy(self) -> None:
        started = time.monotonic()
        head = example.commit_hash(self._folder)
        notify = await self._deployment_of("notify", head)
        ended = await self._wait_until(notify, lambda d: is_completed(d.status))
        self._row("deploy: notify (runs, RFC form)", "SUCCESS", _status(ended), started)
        self._row(
            "  its script wrote", f"deployed {head}", self._read_lines_of("notify", head), started
        )
        hello = await self._deployment_of("hello", head)
        waiting = await self._wait_until(hello, is_waiting_for_approval)
        self._row(
            "deploy: hello (with.run) waits for approval",
            "SCRIPT_RUN=SUCCESS WAIT=SUCCESS WAIT_APPROVAL=RUNNING SCRIPT_RUN=NOT_STARTED_YET",
            _stages(waiting, rollback=False),
            started,
        )

    async def _verify_publish(self, started: float) -> None:
        head = example.commit_hash(self._folder)
        ended = await self._wait_ended("hello", head)
        self._row("  it ends", "SUCCESS", _status(ended), started)
        wanted = f"build {head}, publish {head}"
        self._row("  its scripts wrote", wanted, self._read_lines_of("hello", head), started)
        log = await self._log_of(ended, "SCRIPT_RUN", 3)
        self._row("  its log says", "True", str("published: hello, world" in log), started)

    async def _verify_look(self, started: float) -> None:
        get, logs = (self._typed[command] for command in LOOK.commands)
        self._row("  get shows its status", "True", str("SUCCESS" in get), started)
        self._row("  logs show what it wrote", "True", str("published: hello" in logs), started)

    async def _verify_change(self, started: float) -> None:
        ended = await self._wait_ended("hello", example.commit_hash(self._folder))
        self._row("  the next deployment ends", "SUCCESS", _status(ended), started)

    async def _verify_rollback(self, started: float) -> None:
        head = example.commit_hash(self._folder)
        ended = await self._wait_ended("hello", head)
        self._row("  it fails", "FAILURE", _status(ended), started)
        self._row(
            "  rollback, in pipeline order",
            "SCRIPT_RUN_ROLLBACK=SUCCESS SCRIPT_RUN_ROLLBACK=SUCCESS",
            _stages(ended, rollback=True),
            started,
        )
        wanted = f"build {head}, publish {head}, undo-build {head}, undo-publish {head}"
        self._row("  its scripts wrote", wanted, self._read_lines_of("hello", head), started)

    async def _verify_cancel(self, started: float) -> None:
        head = example.commit_hash(self._folder)
        ended = await self._wait_ended("hello", head)
        self._row("  it is cancelled", "CANCELLED", _status(ended), started)
        wanted = f"build {head}, undo-build {head}"
        self._row("  its scripts wrote", wanted, self._read_lines_of("hello", head), started)

    async def _verify_sync(self, started: float) -> None:
        drift = self._typed[SEE_DRIFT]
        self._row("  diff shows the drift", "True", str("by hand" in drift), started)
        self._row("  then", "SYNCED", await self._wait_for_sync_status("SYNCED"), started)
        pages = [example.page(self._folder, region) for region in example.REGIONS]
        self._row("  both show", "Hello from version 1", " / ".join(dict.fromkeys(pages)), started)

    async def _cancel_running(self) -> None:
        started = time.monotonic()
        text = example.hello_file(self._folder)
        sleeper = SLEEPER.format(out=shlex.quote(str(self._folder.out)))
        example.write(self._folder, "hello/sleeper.sh", sleeper)
        broken = text.replace('echo "building: $(cat message.txt)"', "sh ./sleeper.sh")
        example.write(self._folder, "hello/app.pipecd.yaml", broken)
        head = example.commit(self._folder, "Sleep long")
        deployment_id = await self._deployment_of("hello", head)
        pid = await self._sleeper()
        request = api_pb2.CancelDeploymentRequest(deployment_id=deployment_id)
        await call(self._session.deployments.CancelDeployment, request)
        ended = await self._wait_until(deployment_id, lambda d: is_completed(d.status))
        self._row("cancel a running script", "CANCELLED", _status(ended), started)
        self._row("  its processes", "gone", "alive" if _alive(pid) else "gone", started)
        self._row(
            "  its script wrote", f"undo-build {head}", self._read_lines_of("hello", head), started
        )

    async def _website(self) -> None:
        started = time.monotonic()
        text = example.PAGE.format(number="version 2")
        example.write(self._folder, "website/public/index.html", text)
        head = example.commit(self._folder, "Version 2")
        deployment_id = await self._deployment_of("website", head)
        ended = await self._wait_until(deployment_id, lambda d: is_completed(d.status))
        self._row(
            "website: one region first, then the other",
            "FILES_CANARY_ROLLOUT=SUCCESS WAIT=SUCCESS FILES_PRIMARY_ROLLOUT=SUCCESS",
            _stages(ended, rollback=False),
            started,
        )
        pages = [example.page(self._folder, region) for region in example.REGIONS]
        self._row("  both show", "Hello from version 2", " / ".join(dict.fromkeys(pages)), started)
        self._row("  what runs", "SYNCED", await self._wait_for_sync_status("SYNCED"), started)

    async def _wait_for_sync_status(self, wanted: str) -> str:
        """Waits for a sync status of the website; returns the one that was seen last."""
        request = pb.GetApplicationRequest(application_id=self._session.applications["website"])
        seen = ""
        with contextlib.suppress(TimedOutError):
            async with _limit("the website is not seen so"):
                while seen != wanted:
                    found = (await call(self._session.api.GetApplication, request)).application
                    seen = application_pb2.ApplicationSyncStatus.Name(found.sync_state.status)
                    await asyncio.sleep(0.1)
        return seen

    async def _wait_ended(self, application: str, commit: str) -> deployment_pb2.Deployment:
        """Waits until the deployment of a commit is completed."""
        deployment_id = await self._deployment_of(application, commit)
        return await self._wait_until(deployment_id, lambda d: is_completed(d.status))

    async def _deployment_of(self, application: str, commit: str) -> str:
        """Waits for the deployment that an application gets for a commit; returns its id."""
        request = pb.ListDeploymentsRequest(
            application_ids=[self._session.applications[application]], limit=50
        )
        changes = stream(self._session.project.WatchChanges, api_pb2.WatchChangesRequest())
        async with _limit(f"no deployment of {application} for {commit[:7]}"), aclosing(changes):
            while True:
                answer = await call(self._session.api.ListDeployments, request)
                for deployment in answer.deployments:
                    if deployment.trigger.commit.hash == commit:
                        return deployment.id
                await anext(changes)

    async def _wait_until(
        self, deployment_id: str, reached: Callable[[deployment_pb2.Deployment], bool]
    ) -> deployment_pb2.Deployment:
        """Returns the deployment as soon as it is as wanted, or completed otherwise."""
        request = api_pb2.WatchDeploymentRequest(deployment_id=deployment_id)
        changes = stream(self._session.deployments.WatchDeployment, request)
        last = deployment_pb2.Deployment()
        async with _limit(f"deployment {deployment_id} went no further"), aclosing(changes):
            async for change in changes:
                last = change.deployment
                if reached(last):
                    break
        return last

    async def _log_of(self, deployment: deployment_pb2.Deployment, stage: str, index: int) -> str:
        answer = await call(
            self._session.api.ListStageLogs, pb.ListStageLogsRequest(deployment_id=deployment.id)
        )
        ids = [s.id for s in deployment.stages if s.name == stage and s.index == index]
        return "\n".join(block.log for block in answer.stage_logs[ids[0]].blocks)

    async def _sleeper(self) -> int:
        """Waits for the script that is to be cancelled; returns its process id."""
        file: Path = self._folder.out / "sleeper.pid"
        async with _limit("the script has not started"):
            while True:
                if text := _text(file):
                    return int(text)
                await asyncio.sleep(0.02)

    def _read_lines_of(self, application: str, commit: str) -> str:
        lines = example.output(self._folder, application)
        return ", ".join(line for line in lines if line.endswith(commit))

    def _row(self, step: str, expected: str, seen: str, started: float) -> None:
        row = Row(step=step, expected=expected, seen=seen, seconds=time.monotonic() - started)
        self.rows.append(row)
        click.echo(_line(row))


async def check(session: QuickstartSession) -> bool:
    """Runs all steps and prints the table; returns whether every row is as expected."""
    click.echo(f"{'':6}{'STEP':46}{'SECONDS':>8}  SEEN")
    journey = JourneyCheck(session)
    await journey.walk()
    good = sum(row.good for row in journey.rows)
    click.echo(f"\n{good} of {len(journey.rows)} as expected")
    return good == len(journey.rows)


def _line(row: Row) -> str:
    seen = row.seen if row.good else f"{row.seen!r}, expected {row.expected!r}"
    return f"{'ok' if row.good else 'FAILED':6}{row.step:46}{row.seconds:8.2f}  {_short(seen)}"


def _short(text: str) -> str:
    """Returns a text with its commit hashes cut to seven characters."""
    return " ".join(
        word[:7] + ("," if word.endswith(",") else "") if len(word.rstrip(",'")) == 40 else word
        for word in text.split(" ")
    )


@asynccontextmanager
async def _limit(what: str) -> AsyncIterator[None]:
    """Limits the time of the block. Raises TimedOutError, which says what did not happen."""
    try:
        async with asyncio.timeout(STEP_LIMIT_SECONDS):
            yield
    except TimeoutError:
        raise TimedOutError(f"{what} within {STEP_LIMIT_SECONDS:g}s") from None


def _status(deployment: deployment_pb2.Deployment) -> str:
    return deployment_pb2.DeploymentStatus.Name(deployment.status).removeprefix("DEPLOYMENT_")


def _stages(deployment: deployment_pb2.Deployment, *, rollback: bool) -> str:
    return _format_stages(stage for stage in deployment.stages if stage.rollback == rollback)


def _format_stages(stages: Iterable[deployment_pb2.PipelineStage]) -> str:
    return " ".join(
        f"{s.name}={deployment_pb2.StageStatus.Name(s.status).removeprefix('STAGE_')}"
        for s in stages
    )


def _text(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def _alive(pid: int) -> bool:
    """Returns whether a process runs; one that waits to be reaped by init does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
