# SPDX-License-Identifier: Apache-2.0
"""A trigger with a real repository and a real state, and a control plane's desk that remembers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import ConflictError, PipecdError, UnavailableError
from pipecd_piped.appconfig import ApplicationFiles
from pipecd_piped.controlplane.state import ControlPlaneState, StateChange
from pipecd_piped.git import Repository
from pipecd_piped.git.access import RemoteAccess
from pipecd_piped.report.commands import REASON, AnyCommand, CommandOutcome
from pipecd_piped.report.statuses import reference
from pipecd_piped.trigger import Trigger
from pipecd_piped.trigger.services import TriggerLimits, TriggerServices
from pipecd_test_support.git_remote import GitRemote
from pipecd_wire.headers import TRIGGERED_DEPLOYMENT_ID
from pipecd_wire.model.application_pb2 import (
    Application,
    ApplicationDeploymentReference,
    ApplicationSyncState,
)
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository, SyncStrategy
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipedservice.service_pb2 import CreateDeploymentChainRequest

Matcher = CreateDeploymentChainRequest.ApplicationMatcher

LIMIT = 30.0
NOW = 1_700_000_000


def application_file(name: str = "web", **spec: Any) -> str:
    lines = ["apiVersion: pipecd.dev/v1beta1", "kind: Application", "spec:", f"  name: {name}"]
    lines += [f"  {key}: {value}" for key, value in spec.items()]
    return "\n".join(lines) + "\n"


def application(id: str = "web", path: str = "", repo: str = "repo", **more: Any) -> Application:
    return Application(
        id=id,
        name=id,
        piped_id="piped",
        project_id="project",
        git_path=ApplicationGitPath(
            repo=ApplicationGitRepository(id=repo, remote="r", branch="main"),
            path=path or f"apps/{id}",
            config_filename="app.pipecd.yaml",
        ),
        created_at=1,
        updated_at=1,
        **more,
    )


def sync(
    application_id: str = "web",
    id: str = "c1",
    strategy: SyncStrategy.ValueType = SyncStrategy.AUTO,
    **more: Any,
) -> Command:
    return Command(
        id=id,
        piped_id="piped",
        type=Command.SYNC_APPLICATION,
        application_id=application_id,
        commander=more.pop("commander", "alice"),
        sync_application=Command.SyncApplication(
            application_id=application_id, sync_strategy=strategy
        ),
        created_at=more.pop("created_at", NOW),
        updated_at=NOW,
        **more,
    )


def chain_sync(
    application_id: str = "web", id: str = "c1", *, chain: str = "chain", block: int = 1
) -> Command:
    """A command of the control plane: a chain has reached the application."""
    return Command(
        id=id,
        piped_id="piped",
        type=Command.CHAIN_SYNC_APPLICATION,
        application_id=application_id,
        commander=chain,
        chain_sync_application=Command.ChainSyncApplication(
            deployment_chain_id=chain, block_index=block, application_id=application_id
        ),
        created_at=NOW,
        updated_at=NOW,
    )


WEB, WITNESS = application("web"), application("witness")


class Desk:
    """The control plane, as far as the trigger sees it. Outlives any number of triggers."""

    def __init__(self) -> None:
        self.state = ControlPlaneState()
        """That of the piped that runs now."""
        self.created: list[Deployment] = []
        self.chains: dict[str, list[Matcher]] = {}
        """By first deployment: what follows it."""
        self.last: dict[str, ApplicationDeploymentReference] = {}
        self.states: list[tuple[str, ApplicationSyncState]] = []
        self.handled_commands: dict[str, str] = {}
        self.refusals: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self.questions = 0
        self.refusing: dict[str, PipecdError] = {}
        self.tries: Counter[str] = Counter()
        self.loses_reports = False
        self.loses_answers: set[str] = set()
        """Applications whose deployments are created without an answer."""
        self.files: dict[str, ApplicationConfig] = {}
        self.notes: dict[str, str] = {}
        self._something = asyncio.Event()

    async def create(self, deployment: Deployment) -> None:
        await asyncio.sleep(0)
        self.tries[deployment.application_id] += 1
        if error := self.refusing.get(deployment.application_id):
            self._note()
            raise error
        if any(known.id == deployment.id for known in self.created):
            raise ConflictError("there already")
        self.created.append(deployment)
        self._note()
        if deployment.application_id in self.loses_answers:
            self.last[deployment.application_id] = reference(deployment)
            raise UnavailableError("it died after the commit")

    async def create_chain(self, deployment: Deployment, matchers: Sequence[Matcher]) -> None:
        await self.create(deployment)
        self.chains[deployment.id] = list(matchers)

    async def last_triggered(self, application_id: str) -> ApplicationDeploymentReference | None:
        self.questions += 1
        await asyncio.sleep(0)
        return self.last.get(application_id)

    def report_triggered(self, deployment: Deployment) -> None:
        if not self.loses_reports:
            self.last[deployment.application_id] = reference(deployment)

    def report_sync_state(self, application_id: str, state: ApplicationSyncState) -> None:
        self.states.append((application_id, state))
        self._note()

    def report_waiting(self, application: Application, sentence: str) -> None:
        if self.waiting.get(application.id, "") != sentence:
            self.waiting[application.id] = sentence
            self._note()

    def take_file(self, application: Application, config: ApplicationConfig) -> None:
        self.files[application.id] = config

    def set_note(self, application_id: str, note: str) -> None:
        if note:
            self.notes[application_id] = note
        else:
            self.notes.pop(application_id, None)
        self._note()

    async def read_deployment(self, deployment_id: str) -> Deployment:
        await asyncio.sleep(0)
        self._note()
        return next(each for each in self.created if each.id == deployment_id)

    def forget(self, application_id: str) -> None:
        self.files.pop(application_id, None)

    def finish_command(self, command: AnyCommand, outcome: CommandOutcome) -> None:
        if outcome.succeeded:
            self.handled_commands[command.id] = outcome.metadata[TRIGGERED_DEPLOYMENT_ID]
        else:
            self.refusals[command.id] = outcome.metadata[REASON]
        self.state.forget_command(command.id)
        self._note()

    def deployed(self) -> list[tuple[str, str]]:
        """Application and commit of each deployment, in the order of creation."""
        return [(each.application_id, each.trigger.commit.hash) for each in self.created]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not condition():
                await self._something.wait()

    def _note(self) -> None:
        self._something.set()
        self._something = asyncio.Event()


class Bench:
    """One remote, one repository, and triggers that come and go."""

    def __init__(self, remote: GitRemote, data_dir: Path) -> None:
        self.remote = remote
        self.data_dir = data_dir
        self.desk = Desk()
        self.handed: list[Deployment] = []
        self.open: dict[str, list[str]] = {}
        """By application, the deployments that are not completed."""
        self.trigger: Trigger | None = None
        self.state = ControlPlaneState()
        self.repository: Repository | None = None
        self.access: RemoteAccess | None = None
        self.limits = TriggerLimits(unreachable_seconds=0.0)
        self.now = float(NOW)

    def move_elsewhere(self, folder: Path) -> None:
        """Reach the remote as if it were on another machine: by an ssh that goes nowhere."""
        ssh = folder / "ssh"
        ssh.write_text(
            '#!/bin/sh\nwhile [ "$1" != host ]; do shift; done\nshift\nexec sh -c "$*"\n'
        )
        ssh.chmod(0o755)
        address = f"ssh://host{self.remote.remote}"
        self.access = RemoteAccess(address=address, variables={"GIT_SSH_COMMAND": str(ssh)})

    @property
    def head(self) -> str:
        """The newest commit of the remote."""
        return str(self.remote.git("rev-parse", "main"))

    @asynccontextmanager
    async def running(
        self, *applications: Application, state: ControlPlaneState | None = None
    ) -> AsyncIterator[None]:
        """A piped that knows these applications while the block runs."""
        self.state = self.desk.state = state or ControlPlaneState()
        self.state.replace(applications=applications, deployments=(), commands=())
        async with Repository(
            id="repo",
            remote=self.access.address if self.access else self.remote.remote,
            branch="main",
            access=self.access,
            folder=self.data_dir / "mirrors" / "repo",
            sync_interval=timedelta(minutes=10),
        ) as self.repository:
            self.trigger = Trigger(
                {"repo": self.repository},
                TriggerServices(
                    state=self.state,
                    configs=ApplicationFiles(),
                    calls=self.desk,
                    on_created=self.handed.append,
                    find_open=lambda application_id: self.open.get(application_id, []),
                    clock=lambda: self.now,
                ),
                self.limits,
            )
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self.trigger.run())
                yield
                running.cancel()

    def close(self, application_id: str) -> None:
        """Have the open deployments of an application completed."""
        assert self.trigger is not None
        self.open.pop(application_id)
        self.trigger.on_closed(application_id)

    def tell(self, *commands: Command, applications: tuple[Application, ...] = ()) -> None:
        """The control plane pushes something."""
        self.state.merge(StateChange(commands=commands, applications=applications))

    async def witnessed(self, commit: str) -> None:
        """Wait until the application `witness`, touched by every commit, is deployed at one.

        All applications are decided about together, so the others are decided about by then.
        """
        await self.desk.until(lambda: ("witness", commit) in self.desk.deployed())

    def push(self, files: dict[str, Any], message: str = "a change") -> str:
        """Commit files, and one of `witness`."""
        seen = len(self.remote.git("log", "--all", "--format=%H").split())
        return str(self.remote.commit({**files, "apps/witness/n": str(seen)}, message))
