# SPDX-License-Identifier: Apache-2.0
"""A control plane, a piped with its plugins, and a repository, in one folder of their own.

With replicas there are several control planes with one PostgreSQL, and two pipeds, each behind a
balancer. The real programs, kept running by the kit, driven through git and the public API only.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from chaos import controlled
from chaos.agent import Agent
from chaos.applications import ALL_NAMES, document
from chaos.clocks import Clocks
from chaos.database import KeptDatabase, running_database
from chaos.kept import Kept
from chaos.places import Armed
from chaos.processes import kill_all, marks
from chaos.spread import SpreadMethod, SpreadStub
from pipecd_test_support.chosen_store import add_store_flags
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
OF_SECOND = ("scriptrun", "wait", "waitapproval")
"""Plugins of the second agent, where there is one."""
BY_SECOND = ("steady", "waiting", "approved", "rerun")
"""Applications of the second agent."""
STUBS = (
    APIServiceStub,
    ApplicationServiceStub,
    WindowServiceStub,
    DeploymentServiceStub,
    PipedServiceStub,
    ProjectServiceStub,
)
PATIENT = Retry(attempts=None, base_seconds=0.05, cap_seconds=0.5)
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
        database: KeptDatabase | None = None,
    ) -> None:
        """`variables`: of all programs beside the usual ones. `names`: of its applications.

        `has_stories`: are there those of stories as well? `database`: for a control plane at each
        of its wires.
        """
        self.root = root
        self.names = tuple(names)
        self.has_stories = has_stories
        self.application_ids: dict[str, str] = {}
        self.repository = root / "repository"
        self.effects = root / "effects"
        self.armed = Armed(root / "armed")
        self.clocks = Clocks(root / "clocks")
        self.addresses: list[str] = []
        """Of the control planes."""
        environment = {**os.environ, **marks(root), "PYTHONUNBUFFERED": "1", **variables}
        environment |= self.armed.environment | self.clocks.environment
        self.database = database
        self.servers = [_control_plane(root, environment)]
        self.agents = [Agent(root, "piped", environment)]
        if database is not None:
            self.servers = [
                _replica(root, environment, number, database.url(number))
                for number in range(len(database.wires))
            ]
            self.agents.append(
                Agent(root, "piped-2", environment, plugins=OF_SECOND, applications=BY_SECOND)
            )
        self.crossed: Counter[str] = Counter()
        """What control planes have answered that the agent in question was not connected to."""
        self.api: Any = None
        self.deployments: Any = None
        self.applications: Any = None
        self.windows: Any = None
        self.pipeds: Any = None
        self.projects: Any = None
        self.reported: set[int] = set()
        """Processes that were there at the end of an earlier round: each is told once."""
        self._committed_at = 0

    @property
    def server(self) -> Kept:
        """The only control plane, or the first one."""
        return self.servers[0]

    @property
    def piped(self) -> Kept:
        """The only piped, or the first one."""
        return self.agents[0].kept

    @property
    def kept(self) -> list[Kept]:
        """All programs that are started again."""
        return [*self.servers, *(each.kept for each in self.agents)]

    def agent_of(self, name: str) -> Agent:
        """Whose application it is."""
        return next((each for each in self.agents if name in each.applications), self.agents[0])

    def note_answer(self, method: SpreadMethod, agent: Agent) -> None:
        """Count what another control plane has answered than the one that the agent is at."""
        there = {each.backend for each in agent.wire.connections}
        if there and method.asked not in there:
            self.crossed[method.name] += 1

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
                name=name, piped_id=self.agent_of(name).id, git_path=path, labels=labels.get(name)
            )
            answer = await call(self.applications.AddApplication, request)
            self.application_ids[name] = answer.application_id

    async def ready(self) -> None:
        """Wait until all pipeds and all their plugins are there."""
        expected = sum(len(each.plugins) for each in self.agents)
        async with asyncio.timeout(START_LIMIT):
            while True:
                with suppress(CallError):
                    answer = await call(self.pipeds.ListPipeds, api_pb2.ListPipedsRequest())
                    states = [plugin.state for item in answer.pipeds for plugin in item.plugins]
                    if states.count(push_pb2.PluginState.READY) == expected:
                        return
                await asyncio.sleep(0.05)

    async def _listening(self, server: Kept) -> str:
        async with asyncio.timeout(START_LIMIT):
            while True:
                text = server.log.read_text() if server.log.exists() else ""
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

    async def start_servers(self, tasks: asyncio.TaskGroup) -> None:
        """All at once. Their addresses stay the same over all restarts."""
        given = [each.arguments for each in self.servers]
        for each in self.servers:
            each.arguments = [*each.arguments, "--listen", "127.0.0.1:0"]
            tasks.create_task(each.keep())
        for each, arguments in zip(self.servers, given, strict=True):
            address = await self._listening(each)
            each.arguments = [*arguments, "--listen", address]
            self.addresses.append(address)

    async def start_agents(self, tasks: asyncio.TaskGroup) -> None:
        for number, each in enumerate(self.agents):
            first = number % len(self.addresses)
            each.wire.backends = [*self.addresses[first:], *self.addresses[:first]]
            made = await call(self.api.RegisterPiped, pb.RegisterPipedRequest(name=each.name))
            each.configure(made, self.repository)
            tasks.create_task(each.kept.keep())
        await self.ready()

    def read_key(self) -> str:
        """For one who may do everything; the control plane that was first has made it."""
        [file] = self.root.glob("server*/admin.key")
        return file.read_text().strip()

    def connect_one(self, address: str = "") -> AbstractAsyncContextManager[Channel]:
        """A channel to one control plane, the first by default."""
        key = self.read_key()
        return connect(
            address or self.addresses[0], metadata=lambda: [("authorization", f"API-KEY {key}")]
        )

    async def connect(self, opened: AsyncExitStack) -> None:
        """Connect people to all control planes, past the wire."""
        channels = [
            await opened.enter_async_context(self.connect_one(each)) for each in self.addresses
        ]
        self.api, self.applications, self.windows, self.deployments, self.pipeds, self.projects = (
            SpreadStub(kind, channels, self.addresses) for kind in STUBS
        )

    async def stop(self) -> None:
        """As a person does it, in this order."""
        for each in (*(agent.kept for agent in self.agents), *self.servers):
            each.signal(signal.SIGCONT)
            await each.stop()


def _control_plane(root: Path, environment: dict[str, str]) -> Kept:
    serve = ["pipecd", "server", "--data-dir", str(root / "server"), "--lease-time", LEASE]
    serve += add_store_flags(root / "server")
    return Kept("control plane", serve, root / "server.log", environment)


def _replica(root: Path, environment: dict[str, str], number: int, url: str) -> Kept:
    """One of several, which share a database and a key."""
    key = root / "encryption.key"
    if not key.exists():
        key.write_text(f"{secrets.token_hex(32)}\n")
        key.chmod(0o600)
    file = root / f"server-{number}.yaml"
    file.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  datastore:\n"
        f"    type: POSTGRESQL\n    config:\n      url: {url}\n"
    )
    serve = ["pipecd", "server", "--data-dir", str(root / f"server-{number}")]
    serve += ["--config-file", str(file), "--encryption-key-file", str(key)]
    serve += ["--lease-time", LEASE]
    return Kept(f"control plane {number}", serve, root / f"server-{number}.log", environment)


@asynccontextmanager
async def running_site(
    root: Path,
    variables: dict[str, str] | None = None,
    names: Iterable[str] = ALL_NAMES,
    *,
    has_stories: bool = False,
    replicas: int = 0,
) -> AsyncIterator[Site]:
    """A site while the block runs; nothing of it is left behind.

    `replicas`: how many control planes share a PostgreSQL; 0 is one on SQLite.
    """
    try:
        async with AsyncExitStack() as opened:
            database = (
                await opened.enter_async_context(running_database(replicas)) if replicas else None
            )
            site = Site(root, variables or {}, names, has_stories=has_stories, database=database)
            site.prepare()
            for each in site.agents:
                await opened.enter_async_context(each.wire.listening())
            tasks = await opened.enter_async_context(asyncio.TaskGroup())
            await site.start_servers(tasks)
            await site.connect(opened)
            await site.start_agents(tasks)
            yield site
            await site.stop()
    finally:
        kill_all(root)
