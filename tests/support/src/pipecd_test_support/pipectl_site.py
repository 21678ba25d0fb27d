# SPDX-License-Identifier: Apache-2.0
"""pipectl against a real control plane, in a pipe or in a terminal of 80 columns.

Applications and deployments are reported as an agent reports them; no agent runs.
"""

import base64
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipecd_model.ids import new_id
from pipecd_test_support.piped_site import BIN, LIMIT, ServerProcess
from pipecd_test_support.typed_terminal import strip_test_run
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference, ApplicationSyncState
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipedservice import service_pb2 as agent_pb
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import call, connect

COLUMNS = 80
REPOSITORY = ApplicationGitRepository(id="example", remote="/example", branch="main")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a terminal got."""

    raw: str
    code: int

    @property
    def text(self) -> str:
        """Without colours."""
        return COLOUR.sub("", self.raw).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def run_in_terminal(
    command: Sequence[str | Path],
    *,
    columns: int = COLUMNS,
    env: dict[str, str] | None = None,
    stdin: str = "",
) -> Shown:
    """Run a program in a terminal of its own, and return what it got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown = b""
    environment = {**strip_test_run(os.environ), "TERM": "xterm-256color", **(env or {})}
    with subprocess.Popen(
        [str(each) for each in command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        if stdin:
            os.write(ours, stdin.encode())
        try:
            while block := os.read(ours, 65536):
                shown += block
        except OSError:
            pass  # how a terminal says that its last program has ended
        os.close(ours)
    return Shown(raw=shown.decode(), code=process.returncode)


@dataclass(kw_only=True)
class ReportedApplication:
    """An application whose deployments a test reports."""

    site: "PipectlSite"
    id: str
    name: str

    async def deploy(self, *, status: str = "RUNNING", age_seconds: int = 60, **more: Any) -> str:
        """Create a deployment as its agent would; returns its id."""
        at = int(time.time()) - age_seconds
        made = pb.Deployment(
            id=more.pop("id", "") or new_id(),
            application_id=self.id,
            application_name=self.name,
            piped_id=self.site.piped_id,
            project_id="default",
            git_path=self.site.make_path(self.name),
            trigger=pb.DeploymentTrigger(
                commit=pb.Commit(
                    hash="0123456789abcdef0123456789abcdef01234567",
                    message="Say it louder\n\nBecause nobody heard it.",
                    author="Ada",
                    branch="main",
                    created_at=at,
                ),
                timestamp=at,
            ),
            status=pb.DeploymentStatus.Value(f"DEPLOYMENT_{status}"),
            created_at=at,
            updated_at=at,
            **more,
        )
        await self.site.report(
            "CreateDeployment", agent_pb.CreateDeploymentRequest(deployment=made)
        )
        return made.id

    async def become(self, state: ApplicationSyncState) -> None:
        """Report a sync state."""
        await self.site.report(
            "ReportApplicationSyncState",
            agent_pb.ReportApplicationSyncStateRequest(application_id=self.id, state=state),
        )

    async def set_last(self, deployment_id: str, *, status: str) -> None:
        """Report the most recent deployment: the SUCCESS one, or the PENDING one."""
        at = int(time.time())
        reference = ApplicationDeploymentReference(
            deployment_id=deployment_id,
            trigger=pb.DeploymentTrigger(
                commit=pb.Commit(hash="0" * 40, message="m", author="a", branch="b", created_at=at),
                timestamp=at,
            ),
            started_at=at,
            completed_at=at if status == "SUCCESS" else 0,
        )
        await self.site.report(
            "ReportApplicationMostRecentDeployment",
            agent_pb.ReportApplicationMostRecentDeploymentRequest(
                application_id=self.id,
                status=pb.DeploymentStatus.Value(f"DEPLOYMENT_{status}"),
                deployment=reference,
            ),
        )


def make_stage(
    name: str, index: int, *, status: str = "NOT_STARTED_YET", **more: Any
) -> pb.PipelineStage:
    """A stage, planned a minute ago."""
    at = int(time.time()) - 60
    return pb.PipelineStage(
        id=more.pop("id", "") or new_id(),
        name=name,
        index=index,
        status=pb.StageStatus.Value(f"STAGE_{status}"),
        created_at=at,
        updated_at=at,
        **more,
    )


@dataclass(kw_only=True)
class PipectlSite:
    """A control plane with one piped that never runs."""

    server: ServerProcess
    piped_id: str = ""
    piped_key: str = field(default="", repr=False)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PIPECTL_ADDRESS": self.server.address,
            "PIPECTL_API_KEY": self.server.admin_key,
            "PIPECTL_INSECURE": "1",
        }

    def run(
        self, *arguments: str, code: int | None = 0, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run pipectl in a pipe."""
        done = subprocess.run(
            [BIN / "pipectl", *arguments],
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def show(self, *arguments: str, columns: int = COLUMNS, **environment: str) -> Shown:
        """Run pipectl in a terminal."""
        return run_in_terminal(
            [BIN / "pipectl", *arguments],
            columns=columns,
            env={**self.environment, **environment},
        )

    async def register_piped(self, name: str) -> None:
        """Register the piped, and report its repository and plugins."""
        made = json.loads(self.run("piped", "register", name).stdout)
        self.piped_id, self.piped_key = made["id"], made["key"]
        assert base64.b64decode(made["base64_key"]).decode() == self.piped_key
        await self.report(
            "ReportPipedMeta",
            agent_pb.ReportPipedMetaRequest(
                version="1",
                repositories=[REPOSITORY],
                plugins=[Piped.Plugin(name="files", deploy_targets=["east", "west"])],
            ),
        )

    def make_path(self, folder: str) -> ApplicationGitPath:
        return ApplicationGitPath(repo=REPOSITORY, path=folder, config_filename="app.pipecd.yaml")

    def add_application(
        self, name: str, *, folder: str = "", flags: Sequence[str] = ()
    ) -> ReportedApplication:
        """Register an application with pipectl."""
        where = ("--piped-id", self.piped_id, "--repo-id", "example", "--app-dir", folder or name)
        made = self.run("application", "add", name, *where, *flags)
        application_id = json.loads(made.stdout)["application_id"]
        return ReportedApplication(site=self, id=application_id, name=name)

    async def report(self, method: str, request: Any) -> None:
        """Call an RPC as the piped."""
        token = [("authorization", f"PIPED-TOKEN default,{self.piped_id},{self.piped_key}")]
        async with connect(self.server.address, metadata=lambda: token) as channel:
            await call(getattr(PipedServiceStub(channel), method), request)

    async def write_log(
        self,
        deployment_id: str,
        stage_id: str,
        lines: Sequence[str],
        *,
        age_seconds: int = 0,
        first_index: int = 1,
    ) -> None:
        """Report lines of a stage's log."""
        at = int(time.time()) - age_seconds
        await self.report(
            "ReportStageLogs",
            agent_pb.ReportStageLogsRequest(
                deployment_id=deployment_id,
                stage_id=stage_id,
                blocks=[
                    LogBlock(index=index, log=line, created_at=at)
                    for index, line in enumerate(lines, first_index)
                ],
            ),
        )
