# SPDX-License-Identifier: Apache-2.0
"""A control plane, a piped with its plugins, and a repository, in one folder of their own.

The real programs, kept running by the kit, driven through git and the public API only.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from chaos import controlled, foreign
from chaos.applications import ALL_NAMES, document
from chaos.clocks import Clocks
from chaos.kept import Kept
from chaos.places import Armed
from chaos.processes import kill_all, marks
from chaos.schedule import ALL_PLUGINS, PLUGINS
from chaos.wire import Wire
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.model import common_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import (
    ApplicationServiceStub,
    DeploymentServiceStub,
    PipedServiceStub,
    ProjectServiceStub,
)
from pipecd_wire.pipecd.api.windows_pb2_grpc import WindowServiceStub
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.rpc import CallError, Channel, Retry, call, connect

LISTENING = "pipecd server listening on "
START_LIMIT = 60.0
LEASE = "5"
"""Seconds: it is renewed many times in a round, and runs out when the control plane stays away."""
PATIENT = Retry(attempts=None, base=0.05, cap=0.5)
"""The control plane may be dead just now."""


class Site:
    """All that a run works with."""

    def __init__(
        self,
        root: Path,
        variables: dict[str, str],
        names: Iterable[str] = ALL_NAMES,
        *,
        has_stories: bool = False,
    ) -> None:
        """`variables`: of all programs beside the usual ones. `names`: of its applications.

        `has_stories`: are there those of stories as well?
        """
        self.root = root
        self.names = tuple(names)
        self.has_stories = has_stories
        self.application_ids: dict[str, str] = {}
        self.repository = root / "repository"
        self.effects = root / "effects"
        self.scripts = root / "piped" / "scripts"
        self.trees = root / "piped" / "trees"
        self.armed = Armed(root / "armed")
        self.clocks = Clocks(root / "clocks")
        self.wire = Wire()
        environment = {**os.environ, **marks(root), "PYTHONUNBUFFERED": "1", **variables}
        environment |= self.armed.environment | self.clocks.environment
        serve = ["pipecd", "server", "--data-dir", str(root / "server"), "--lease-time", LEASE]
        run = ["piped", "run", "--config-file", str(root / "piped.yaml"), "--insecure"]
        run += ["--data-dir", str(root / "piped")]
        self.server = Kept("control plane", serve, root / "server.log", environment)
        self.piped = Kept("piped", run, root / "piped.log", environment)
        self.api: Any = None
        self.deployments: Any = None
        self.applications: Any = None
        self.windows: Any = None
        self.pipeds: Any = None
        self.projects: Any = None
        self.piped_id = ""
        self.reported: set[int] = set()
        """Processes that were there at the end of an earlier round: each is told once."""
        self._committed_at = 0

    def git(self, *arguments: str, committed_at: str = "") -> str:
        command = ["git", "-C", str(self.repository), *arguments]
        dated = {"GIT_COMMITTER_DATE": committed_at} if committed_at else {}
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **dated}
        ).stdout

    def commit(self, nonce: str) -> str:
        """Change all applications at once; the commit."""
        return self.publish(
            {name: document(name, self.effects, nonce) for name in self.names}, nonce
        )

    def publish(self, documents: Mapping[str, str], message: str) -> str:
        """Commit the files of some applications; the commit.

        All commits of a round have one message: the one that a deployment is made of may be
        another one's, if that was the newest. No two are of the same second.
        """
        for name, text in documents.items():
            file = self.repository / name / "app.pipecd.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        self._committed_at = max(self._committed_at + 1, int(time.time()))
        date = f"{self._committed_at} +0000"
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message, "--date", date, committed_at=date)
        return self.git("rev-parse", "HEAD").strip()

    async def add_applications(self) -> None:
        labels = {name: each.labels for name, each in controlled.APPLICATIONS.items()}
        for name in (*self.names, *(labels if self.has_stories else ())):
            path = common_pb2.ApplicationGitPath(
                repo=common_pb2.ApplicationGitRepository(id="chaos"),
                path=name,
                config_filename="app.pipecd.yaml",
            )
            request = api_pb2.AddApplicationRequest(
                name=name, piped_id=self.piped_id, git_path=path, labels=labels.get(name)
            )
            answer = await call(self.applications.AddApplication, request)
            self.application_ids[name] = answer.application_id

    async def ready(self) -> None:
        """Wait until piped and all its plugins are there."""
        async with asyncio.timeout(START_LIMIT):
            while True:
                with suppress(CallError):
                    answer = await call(self.pipeds.ListPipeds, api_pb2.ListPipedsRequest())
                    states = [plugin.state for item in answer.pipeds for plugin in item.plugins]
                    if states.count(push_pb2.PluginState.READY) == len(ALL_PLUGINS):
                        return
                await asyncio.sleep(0.05)

    async def _listening(self) -> str:
        async with asyncio.timeout(START_LIMIT):
            while True:
                text = self.server.log.read_text() if self.server.log.exists() else ""
                for line in text.splitlines():
                    if line.startswith(LISTENING):
                        return line.removeprefix(LISTENING).strip()
                await asyncio.sleep(0.02)

    def prepare(self) -> None:
        self.repository.mkdir()
        self.effects.mkdir()
        (self.root / "fixed").mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "chaos")
        self.git("config", "user.email", "chaos@localhost")
        self.git("commit", "--quiet", "--allow-empty", "--message", "begin")

    async def start_server(self, tasks: asyncio.TaskGroup) -> str:
        """The address, which stays the same over all restarts."""
        listen = self.server.arguments
        self.server.arguments = [*listen, "--listen", "127.0.0.1:0"]
        tasks.create_task(self.server.keep())
        address = await self._listening()
        self.server.arguments = [*listen, "--listen", address]
        return address

    async def start_piped(self, tasks: asyncio.TaskGroup) -> None:
        made = await call(self.api.RegisterPiped, pb.RegisterPipedRequest(name="chaos"))
        self.piped_id = made.id
        (self.root / "piped.key").write_text(made.key)
        plugins = "".join(f"    - name: {name}\n" for name in PLUGINS)
        plugins += foreign.configuration(self.root)
        (self.root / "piped.yaml").write_text(
            "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  projectID: default\n"
            f"  pipedID: {made.id}\n  pipedKeyFile: {self.root / 'piped.key'}\n"
            f"  apiAddress: {self.wire.address}\n  repositories:\n    - repoId: chaos\n"
            f"      remote: {self.repository}\n      branch: main\n  plugins:\n{plugins}"
        )
        tasks.create_task(self.piped.keep())
        await self.ready()

    def connect(self) -> AbstractAsyncContextManager[Channel]:
        """A channel to the control plane, past the wire, for one who may do everything."""
        key = (self.root / "server" / "admin.key").read_text().strip()
        return connect(self.wire.upstream, metadata=lambda: [("authorization", f"API-KEY {key}")])

    async def stop(self) -> None:
        """As a person does it, in this order."""
        for each in (self.piped, self.server):
            each.signal(signal.SIGCONT)
            await each.stop()


@asynccontextmanager
async def running_site(
    root: Path,
    variables: dict[str, str] | None = None,
    names: Iterable[str] = ALL_NAMES,
    *,
    has_stories: bool = False,
) -> AsyncIterator[Site]:
    """A site while the block runs; nothing of it is left behind."""
    site = Site(root, variables or {}, names, has_stories=has_stories)
    site.prepare()
    try:
        async with site.wire.open(), asyncio.TaskGroup() as tasks:
            site.wire.upstream = await site.start_server(tasks)
            async with site.connect() as channel:
                site.api = APIServiceStub(channel)
                site.applications = ApplicationServiceStub(channel)
                site.windows = WindowServiceStub(channel)
                site.deployments = DeploymentServiceStub(channel)
                site.pipeds = PipedServiceStub(channel)
                site.projects = ProjectServiceStub(channel)
                await site.start_piped(tasks)
                yield site
                await site.stop()
    finally:
        kill_all(root)
