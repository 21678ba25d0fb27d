# SPDX-License-Identifier: Apache-2.0
"""A control plane, a piped and its plugins as real processes, and a git repository to deploy from.

Deployments are created through the control plane, as an earlier piped would have left them: what is
tested with it begins where the trigger ends, unless a test says otherwise.
"""

import asyncio
import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipecd_model.ids import new_id
from pipecd_test_support.chosen_store import add_store_flags
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.api.api_pb2_grpc import (
    ApplicationServiceStub,
    DeploymentServiceStub,
    PipedServiceStub,
)
from pipecd_wire.pipecd.push.push_pb2 import PluginState
from pipecd_wire.pipedservice import service_pb2 as piped_pb
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub as AgentStub
from pipecd_wire.rpc import Channel, Retry, call, connect, stream

if TYPE_CHECKING:
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub
    from pipecd_wire.pipecd.api.api_pb2_grpc import (
        ApplicationServiceAsyncStub,
        DeploymentServiceAsyncStub,
        PipedServiceAsyncStub,
    )
    from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceAsyncStub as AgentAsyncStub

BIN = Path(sys.executable).parent
LIMIT = 60
LISTENING = "pipecd server listening on "


class ServerProcess:
    """A control plane that can be stopped and started again on its address."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "log"
        self.address = "127.0.0.1:0"
        self.variables: dict[str, str] = {}
        """Of its environment, beside those of the test."""

    @property
    def folder(self) -> Path:
        """Its log, and all it keeps."""
        return self._folder

    @property
    def admin_key(self) -> str:
        return (self._folder / "data" / "admin.key").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._log.unlink(missing_ok=True)
        data = self._folder / "data"
        arguments = ["--data-dir", str(data), "--listen", self.address]
        arguments += add_store_flags(data, self._flags)
        with self._log.open("wb") as sink:
            self._process = subprocess.Popen(
                [str(BIN / "pipecd"), "server", *arguments],
                env={**os.environ, **self.variables},
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        key = data / "admin.key"
        until(lambda: LISTENING in self._log.read_text() and key.exists(), self._process, self._log)
        self.address = self._log.read_text().partition(LISTENING)[2].splitlines()[0]

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=LIMIT)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=LIMIT)


def until(holds: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    limit = time.monotonic() + LIMIT
    while not holds():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.02)  # between looks at another process's output


class SiteClient:
    """What a person and an agent can ask the control plane."""

    def __init__(self, site: "PipedSite", person: Channel, agent: Channel) -> None:
        self._site = site
        self.api: APIServiceAsyncStub = APIServiceStub(person)
        self.applications: ApplicationServiceAsyncStub = ApplicationServiceStub(person)
        self.deployments: DeploymentServiceAsyncStub = DeploymentServiceStub(person)
        self.pipeds: PipedServiceAsyncStub = PipedServiceStub(person)
        self.agent: AgentAsyncStub = AgentStub(agent)

    async def register(self, path: str, **targets: Sequence[str]) -> str:
        """Register the application in a folder of the repository; answers its id."""
        request = own.AddApplicationRequest(
            name=path,
            piped_id=self._site.piped_id,
            git_path=self._site.git_path(path),
            deploy_targets_by_plugin={
                plugin: pb.DeployTargets(deploy_targets=names) for plugin, names in targets.items()
            },
        )
        # The control plane knows the repository when piped has introduced itself.
        retry = Retry(attempts=5 * LIMIT, cap_seconds=0.2, also=frozenset({"NOT_FOUND"}))
        return (await call(self.applications.AddApplication, request, retry=retry)).application_id

    async def register_older(self, path: str, provider: str) -> str:
        """Register an application as older clients do, with a provider; answers its id."""
        request = external.AddApplicationRequest(
            name=path,
            piped_id=self._site.piped_id,
            git_path=self._site.git_path(path),
            platform_provider=provider,
        )
        retry = Retry(attempts=5 * LIMIT, cap_seconds=0.2, also=frozenset({"NOT_FOUND"}))
        return (await call(self.api.AddApplication, request, retry=retry)).application_id

    async def wait_deployed(self, application_id: str, commit: str = "") -> pb.Deployment:
        """Wait until the deployment that piped has triggered is over; answers it.

        Without a commit, any deployment of the application is meant.
        """
        wanted = external.ListDeploymentsRequest(application_ids=[application_id], limit=100)

        async def find() -> str:
            found = (await call(self.api.ListDeployments, wanted)).deployments
            ids = (each.id for each in found if commit in {"", each.trigger.commit.hash})
            return next(ids, "")

        ended: pb.Deployment = await self.completed(await wait_answer(find, bool))
        return ended

    async def deploy(
        self,
        path: str,
        commit: str,
        application_id: str = "",
        targets: Mapping[str, Sequence[str]] | None = None,
        **more: Any,
    ) -> str:
        """Create a deployment of a commit; answers its id."""
        application_id = application_id or await self.register(path)
        now = int(time.time())
        made = pb.Deployment(
            id=new_id(),
            application_id=application_id,
            application_name=path,
            piped_id=self._site.piped_id,
            project_id="default",
            git_path=self._site.git_path(path),
            deploy_targets_by_plugin={
                plugin: pb.DeployTargets(deploy_targets=names)
                for plugin, names in (targets or {}).items()
            },
            trigger=pb.DeploymentTrigger(
                commit=pb.Commit(
                    hash=commit, message="a change", author="Ada", branch="main", created_at=now
                ),
                timestamp=now,
                **more,
            ),
            created_at=now,
            updated_at=now,
        )
        request = piped_pb.CreateDeploymentRequest(deployment=made)
        await call(self.agent.CreateDeployment, request)
        return made.id

    async def until(
        self, deployment_id: str, holds: Callable[[pb.Deployment], bool]
    ) -> pb.Deployment:
        """Follow a deployment until something is true of it."""
        request = own.WatchDeploymentRequest(deployment_id=deployment_id)
        seen = pb.Deployment()
        with self._site.explained():
            async with (
                asyncio.timeout(LIMIT),
                contextlib.aclosing(stream(self.deployments.WatchDeployment, request)) as changes,
            ):
                async for change in changes:
                    seen = change.deployment
                    if holds(seen):
                        return seen
        raise AssertionError(f"it ended without: {seen}\n{self._site.log_text()}")

    async def completed(self, deployment_id: str) -> pb.Deployment:
        return await self.until(deployment_id, lambda it: it.status >= pb.DEPLOYMENT_SUCCESS)

    async def stage_running(self, deployment_id: str, index: int) -> pb.PipelineStage:
        """Wait until the forward stage at an index runs."""

        def stage(deployment: pb.Deployment) -> pb.PipelineStage | None:
            for each in deployment.stages:
                if each.index == index and not each.rollback:
                    return each
            return None

        def runs(deployment: pb.Deployment) -> bool:
            found = stage(deployment)
            return found is not None and found.status == pb.STAGE_RUNNING

        found = stage(await self.until(deployment_id, runs))
        assert found is not None
        return found

    async def cancel(
        self, deployment_id: str, *, force_rollback: bool = False, force_no_rollback: bool = False
    ) -> None:
        request = own.CancelDeploymentRequest(
            deployment_id=deployment_id,
            force_rollback=force_rollback,
            force_no_rollback=force_no_rollback,
        )
        await call(self.deployments.CancelDeployment, request)

    async def log(self, deployment: pb.Deployment, stage: pb.PipelineStage) -> list[str]:
        """The whole log of a stage."""
        request = own.FollowStageLogRequest(deployment_id=deployment.id, stage_id=stage.id)
        lines: list[str] = []
        async with asyncio.timeout(LIMIT):
            async for part in stream(self.deployments.FollowStageLog, request):
                lines += [block.log for block in part.blocks]
        return lines

    async def plugin_states(self) -> dict[str, PluginState]:
        answer = await call(self.pipeds.ListPipeds, own.ListPipedsRequest())
        [mine] = [each for each in answer.pipeds if each.piped.id == self._site.piped_id]
        return {plugin.name: plugin for plugin in mine.plugins}

    async def plugins_are(self, **phases: str) -> dict[str, PluginState]:
        """Wait until plugins are in these phases."""
        async with asyncio.timeout(LIMIT):
            while True:
                states = await self.plugin_states()
                names = {name: PluginState.State.Name(it.state) for name, it in states.items()}
                if phases.items() <= names.items():
                    return states
                assert self._site.alive(), self._site.log_text()
                await asyncio.sleep(0.05)  # between looks at another process


class PipedSite:
    """One piped: its configuration, its folder, its repository, and its process."""

    def __init__(self, folder: Path, server: ServerProcess, piped_id: str, key: str) -> None:
        self.folder = folder
        self.server = server
        self.piped_id = piped_id
        self.key = key
        self.repository = folder / "repository"
        self.data = folder / "data"
        self.log = folder / "piped.log"
        self.record = folder / "record"
        self.process: subprocess.Popen[bytes] | None = None
        self.variables: dict[str, str] = {}
        """Of its environment, beside those of the test."""
        self.repository.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.repository,
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        return done.stdout.strip()

    def commit(self, files: Mapping[str, str | None], message: str = "a change") -> str:
        """Write files (None deletes one) and commit them; answers the hash."""
        for name, content in files.items():
            file = self.repository / name
            if content is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", f"--message={message}")
        return self.git("rev-parse", "HEAD")

    def commit_application(
        self, path: str, stages: Iterable[Mapping[str, Any]], **spec: Any
    ) -> str:
        """Commit an application file; it deploys only when it is told to."""
        return self.commit({f"{path}/app.pipecd.yaml": application(path, stages, **spec)})

    def git_path(self, path: str) -> ApplicationGitPath:
        return ApplicationGitPath(
            repo=ApplicationGitRepository(id="example", remote=str(self.repository), branch="main"),
            path=path,
            config_filename="app.pipecd.yaml",
        )

    def configure(self, *plugins: Mapping[str, Any] | str, **spec: Any) -> Path:
        """Write the piped's configuration."""
        key = self.folder / "key"
        key.write_text(self.key + "\n")
        document = {
            "apiVersion": "pipecd.dev/v1beta1",
            "kind": "Piped",
            "spec": {
                "projectID": "default",
                "pipedID": self.piped_id,
                "pipedKeyFile": str(key),
                "apiAddress": self.server.address,
                "repositories": [
                    {"repoId": "example", "remote": str(self.repository), "branch": "main"}
                ],
                "plugins": [
                    {"name": plugin} if isinstance(plugin, str) else dict(plugin)
                    for plugin in plugins
                ],
                **spec,
            },
        }
        file = self.folder / "piped.yaml"
        file.write_text(json.dumps(document))
        return file

    def start(self, *flags: str) -> None:
        arguments = ["--config-file", str(self.folder / "piped.yaml"), "--insecure"]
        arguments += ["--data-dir", str(self.data)]
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                [str(BIN / "piped"), "run", *arguments, *flags],
                env={**os.environ, **self.variables},
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def twin(self) -> "PipedSite":
        """The same piped on another machine: another data folder, nothing started yet."""
        made = copy.copy(self)
        made.data = self.folder / "data-of-twin"
        made.log = self.folder / "twin.log"
        made.process = None
        return made

    @property
    def pid(self) -> int:
        """The process id of the piped, which has been started."""
        return self.require_process().pid

    def find_plugin_pid(self, name: str) -> int:
        """The process of a plugin, from what piped has on record."""
        [pid] = [
            int(file.name)
            for file in (self.data / "processes").iterdir()
            if json.loads(file.read_text())["plugin"] == name
        ]
        return pid

    def require_process(self) -> "subprocess.Popen[bytes]":
        """The process of the piped, which has been started."""
        assert self.process is not None, "piped was not started"
        return self.process

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.require_process().send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of piped; answers its exit code."""
        with self.explained():
            return await asyncio.to_thread(self.require_process().wait, LIMIT)

    async def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return await self.ended()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(20)

        # Scripts outlive their piped; those of a test that failed must not outlive the test.
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if (entry / "cwd").readlink().is_relative_to(self.folder):
                        os.kill(int(entry.name), signal.SIGKILL)

    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def events(self) -> list[dict[str, Any]]:
        """The lines of piped's log."""
        return [json.loads(line) for line in self.log_text().splitlines() if line[:1] == "{"]

    def records(self, file: str = "record") -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(self.log_text()[-8000:])
            raise

    def pipectl(self, *arguments: str, code: int = 0) -> str:
        """Run pipectl in a pipe; returns what it printed, of a failure the error."""
        done = subprocess.run(
            [BIN / "pipectl", *arguments],
            env={
                **os.environ,
                "PIPECTL_ADDRESS": self.server.address,
                "PIPECTL_API_KEY": self.server.admin_key,
                "PIPECTL_INSECURE": "1",
            },
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    @asynccontextmanager
    async def client(self) -> AsyncIterator[SiteClient]:
        person = f"API-KEY {self.server.admin_key}"
        agent = f"PIPED-TOKEN default,{self.piped_id},{self.key}"
        async with (
            connect(self.server.address, metadata=lambda: [("authorization", person)]) as first,
            connect(self.server.address, metadata=lambda: [("authorization", agent)]) as second,
        ):
            yield SiteClient(self, first, second)


def application(path: str, stages: Iterable[Mapping[str, Any]], **spec: Any) -> str:
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {
            "name": path,
            "trigger": {"onCommit": {"disabled": True}},
            "pipeline": {"stages": list(stages)},
            "planner": {"alwaysUsePipeline": True},
            **spec,
        },
    }
    return json.dumps(document)


def register_site(folder: Path, server: ServerProcess) -> PipedSite:
    """Register a piped through pipectl."""
    done = subprocess.run(
        [BIN / "pipectl", "piped", "register", "--name", folder.name],
        env={
            **os.environ,
            "PIPECTL_ADDRESS": server.address,
            "PIPECTL_API_KEY": server.admin_key,
            "PIPECTL_INSECURE": "1",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    made = json.loads(done.stdout)
    return PipedSite(folder, server, made["id"], made["key"])
