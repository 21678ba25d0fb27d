# SPDX-License-Identifier: Apache-2.0
"""A control plane, a piped and a repository of their own, for measuring.

The real programs as processes, driven through git and the public API only.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipecd_model.deployment import COMPLETED
from pipecd_quickstart.processes import RunningProgram, listening_address, running
from pipecd_quickstart.session import wait_until_ready
from pipecd_runtime.arguments import own
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.model import common_pb2, deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import (
    ApplicationServiceStub,
    DeploymentServiceStub,
    ProjectServiceStub,
)
from pipecd_wire.pipecd.api.repositories_pb2_grpc import RepositoryServiceStub
from pipecd_wire.rpc import call, connect, stream

PLUGINS = ("wait", "waitapproval", "scriptrun")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a measurement works with."""

    root: Path
    repository: Path
    server: RunningProgram
    piped: RunningProgram
    piped_id: str
    api: Any
    applications: Any
    deployments: Any
    project: Any
    repositories: Any

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.repository), *arguments],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def write(self, path: str, text: str) -> None:
        file = self.repository / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD").strip()

    async def add_application(
        self, name: str, *, target: str = "", plugin: str = "kubernetes"
    ) -> str:
        """Register an application, for a deploy target of a plugin if one is named."""
        targets = {plugin: deployment_pb2.DeployTargets(deploy_targets=[target])}
        request = api_pb2.AddApplicationRequest(
            name=name,
            piped_id=self.piped_id,
            git_path=common_pb2.ApplicationGitPath(
                repo=common_pb2.ApplicationGitRepository(id="bench"),
                path=name,
                config_filename="app.pipecd.yaml",
            ),
            deploy_targets_by_plugin=targets if target else {},
        )
        made = await call(self.applications.AddApplication, request)
        return str(made.application_id)

    async def deployments_of(
        self, commit: str, count: int, *, completed: bool = False
    ) -> list[deployment_pb2.Deployment]:
        """The deployments of a commit, as soon as there are `count` of them (all completed)."""
        changes = stream(self.project.WatchChanges, api_pb2.WatchChangesRequest())
        async with asyncio.timeout(300), aclosing(changes):
            while True:
                request = pb.ListDeploymentsRequest(limit=max(200, count + 20))
                answer = await call(self.api.ListDeployments, request)
                found = [
                    d
                    for d in answer.deployments
                    if d.trigger.commit.hash == commit and (not completed or d.status in COMPLETED)
                ]
                if len(found) >= count:
                    return found
                await anext(changes)

    async def until(self, deployment_id: str, reached: Any) -> deployment_pb2.Deployment:
        request = api_pb2.WatchDeploymentRequest(deployment_id=deployment_id)
        changes = stream(self.deployments.WatchDeployment, request)
        async with asyncio.timeout(120), aclosing(changes):
            async for change in changes:
                found: deployment_pb2.Deployment = change.deployment
                if reached(found) or found.status in COMPLETED:
                    return found
        raise AssertionError(f"the stream of {deployment_id} ended early")

    def follow_log(self) -> AsyncIterator[dict[str, str]]:
        """Yields each event that piped logs from now on: what nobody has to ask it for."""
        file = (self.root / "piped.log").open("rb")
        file.seek(0, os.SEEK_END)
        return _read_events(file)

    def agent_pids(self) -> list[int]:
        """piped and its plugins."""
        return [self.piped.pid, *children(self.piped.pid)]


async def _read_events(file: BinaryIO) -> AsyncIterator[dict[str, str]]:
    rest = b""
    with file:
        while True:
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    yield json.loads(line)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def world(
    root: Path, *, plugins: Sequence[Mapping[str, Any]] = (), remote: str = ""
) -> AsyncIterator[World]:
    """`plugins`: entries of the piped file, besides those of stages that need no platform.

    With a remote the agent watches that, and polls it once an hour.
    """
    entries = [*({"name": name} for name in PLUGINS), *plugins]
    repository = root / "repository"
    repository.mkdir()
    control_plane = root / "control-plane"
    for arguments in (
        ["init", "--quiet", "--initial-branch=main"],
        ["config", "user.name", "bench"],
        ["config", "user.email", "bench@localhost"],
        ["commit", "--quiet", "--allow-empty", "--message", "begin"],
    ):
        subprocess.run(["git", "-C", str(repository), *arguments], check=True)
    serve = ["pipecd", "server", "--data-dir", str(control_plane), "--listen", "127.0.0.1:0"]
    async with running("the control plane", own(*serve), root / "server.log") as server:
        address = await listening_address(server, since=0)
        key = (control_plane / "admin.key").read_text().strip()
        credentials = [("authorization", f"API-KEY {key}")]
        async with connect(address, metadata=lambda: credentials) as channel:
            api = APIServiceStub(channel)
            made = await call(api.RegisterPiped, pb.RegisterPipedRequest(name="bench"))
            (root / "piped.key").write_text(made.key)
            (root / "piped.yaml").write_text(_piped_config(root, made.id, address, entries, remote))
            run = ["piped", "run", "--config-file", str(root / "piped.yaml"), "--insecure"]
            run += ["--data-dir", str(root / "piped")]
            async with running("piped", own(*run), root / "piped.log") as piped:
                await wait_until_ready(channel, piped, [each["name"] for each in entries])
                yield World(
                    root=root,
                    repository=repository,
                    server=server,
                    piped=piped,
                    piped_id=made.id,
                    api=api,
                    applications=ApplicationServiceStub(channel),
                    deployments=DeploymentServiceStub(channel),
                    project=ProjectServiceStub(channel),
                    repositories=RepositoryServiceStub(channel),
                )


def make_plugin_entry(name: str, target: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An entry of the piped file, with the deploy target `main`."""
    return {"name": name, "deployTargets": [{"name": "main", "config": target}], **more}


def _piped_config(
    root: Path, piped_id: str, address: str, plugins: Sequence[Mapping[str, Any]], remote: str
) -> str:
    repository = {"repoId": "bench", "remote": remote or str(root / "repository"), "branch": "main"}
    spec = {
        "projectID": "default",
        "pipedID": piped_id,
        "pipedKeyFile": str(root / "piped.key"),
        "apiAddress": address,
        "repositories": [repository],
        "plugins": plugins,
        **({"syncInterval": "1h"} if remote else {}),
    }
    return json.dumps({"apiVersion": "pipecd.dev/v1beta1", "kind": "Piped", "spec": spec})


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            found.append(child)
            waiting.append(child)
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time that processes have used, their ended children included."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended: what it used is counted with its parent
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def pss_mib(pids: Iterable[int]) -> float:
    """Memory that processes really cost, shared pages divided among their users."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # a helper of the agent's, such as an idle shim, that has ended by now
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024
