# SPDX-License-Identifier: Apache-2.0
"""A plugin's executable in a test: started as piped starts it, spoken to as piped speaks to it."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

from pipecd_runtime import process as door
from pipecd_runtime.orphans import (
    MARK_VARIABLE,
    Leader,
    Search,
    end_orphans,
    new_mark,
    start_of,
)
from pipecd_runtime.ports import pick_port
from pipecd_sdk.testing.piped import FakePiped
from pipecd_wire.headers import PIPED_TOKEN_HEADER, PIPED_TOKEN_VARIABLE, PLUGIN_TOKEN_VARIABLE
from pipecd_wire.model import application_live_state_pb2 as live_pb2
from pipecd_wire.model import common_pb2, deployment_pb2
from pipecd_wire.pipecd.details import details_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2, plugin_pb2_grpc
from pipecd_wire.plugin.common import common_pb2 as source_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2, api_pb2_grpc
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate_pb2
from pipecd_wire.plugin.livestateapi import api_pb2_grpc as livestate_grpc
from pipecd_wire.plugin.planpreviewapi import api_pb2 as preview_pb2
from pipecd_wire.plugin.planpreviewapi import api_pb2_grpc as preview_grpc
from pipecd_wire.rpc import Channel, ClientTls, call, connect, wait_until_ready

START_LIMIT_SECONDS = 30.0


class LaunchMode(Enum):
    """The two ways to start a plugin."""

    COMMAND_LINE = "the configuration and the port on the command line, as a Go agent does"
    DESCRIPTOR = "the configuration on a file descriptor, the port told in Ready"


def executable(name: str) -> Path:
    """Returns the path of the installed script of this name, beside the running Python."""
    return Path(sys.executable).parent / name


@dataclass(slots=True, kw_only=True)
class PluginProcess:
    """A running plugin."""

    name: str
    process: door.Process
    port: int
    channel: Channel
    file: IO[str]

    @property
    def output(self) -> list[str]:
        """What it has printed so far, on both outputs."""
        return _lines(self.file)

    @property
    def deployments(self) -> "api_pb2_grpc.DeploymentServiceAsyncStub":
        return api_pb2_grpc.DeploymentServiceStub(self.channel)

    @property
    def configs(self) -> "plugin_pb2_grpc.PluginConfigServiceAsyncStub":
        return plugin_pb2_grpc.PluginConfigServiceStub(self.channel)

    async def plan(
        self, *stages: tuple[str, Mapping[str, Any]], rollback: bool = True
    ) -> list[deployment_pb2.PipelineStage]:
        """Ask for the stage list of a pipeline."""
        request = api_pb2.BuildPipelineSyncStagesRequest(rollback=rollback)
        for index, (name, options) in enumerate(stages):
            request.stages.add(
                name=name, index=index, timeout="6h0m0s", config=json.dumps(options).encode()
            )
        answer = await call(self.deployments.BuildPipelineSyncStages, request)
        return list(answer.stages)

    async def execute(
        self,
        stage: str,
        options: Mapping[str, Any] | None = None,
        *,
        index: int = 0,
        stage_id: str = "",
        directory: Path | None = None,
        deployment: deployment_pb2.Deployment | None = None,
        application: Mapping[str, Any] | None = None,
    ) -> api_pb2.ExecuteStageResponse:
        """Run a stage to its end; cancelling this cancels the call. Raises CallError.

        `application` is the plugin's part of the application file.
        """
        given = api_pb2.ExecutePluginInput(
            deployment=deployment or example_deployment(),
            stage=deployment_pb2.PipelineStage(
                id=stage_id or f"stage-{index}",
                name=stage,
                index=index,
                created_at=1,
                updated_at=1,
            ),
            stage_config=b"" if options is None else json.dumps(options).encode(),
            target_deployment_source=self._source(directory, application),
        )
        request = api_pb2.ExecuteStageRequest(input=given)
        return await call(self.deployments.ExecuteStage, request, deadline=None)

    def _source(
        self, directory: Path | None, application: Mapping[str, Any] | None
    ) -> source_pb2.DeploymentSource:
        return example_source(directory, {self.name: dict(application or {})})

    async def live_state(
        self,
        *,
        targets: Sequence[str] = (),
        directory: Path | None = None,
        application: Mapping[str, Any] | None = None,
    ) -> livestate_pb2.GetLivestateResponse:
        """Ask what runs, and whether it is what `directory` holds. Raises CallError."""
        request = livestate_pb2.GetLivestateRequest(
            piped_id="piped-1",
            application_id="application-1",
            application_name="shop",
            deploy_source=self._source(directory, application),
            deploy_targets=targets,
        )
        stub = livestate_grpc.LivestateServiceStub(self.channel)
        return await call(stub.GetLivestate, request, deadline=60)

    async def open_resource(
        self,
        resource: live_pb2.ResourceState,
        *,
        directory: Path | None = None,
        application: Mapping[str, Any] | None = None,
        container: str = "",
        log_lines: int = 100,
    ) -> details_pb2.ResourceDetails:
        """Ask for the details of a resource of the live state. Raises CallError."""
        request = plugin_pb2.OpenResourceRequest(
            piped_id="piped-1",
            application_id="application-1",
            application_name="shop",
            deploy_source=self._source(directory, application),
            deploy_target=resource.deploy_target,
            resource=resource,
            container=container,
            log_lines=log_lines,
        )
        stub = plugin_pb2_grpc.PluginDetailsServiceStub(self.channel)
        return (await call(stub.OpenResource, request, deadline=60)).details

    async def plan_preview(
        self,
        *,
        targets: Sequence[str] = (),
        directory: Path | None = None,
        application: Mapping[str, Any] | None = None,
    ) -> preview_pb2.GetPlanPreviewResponse:
        """Ask what deploying `directory` would change. Raises CallError."""
        request = preview_pb2.GetPlanPreviewRequest(
            piped_id="piped-1",
            application_id="application-1",
            application_name="shop",
            target_deployment_source=self._source(directory, application),
            deploy_targets=targets,
        )
        stub = preview_grpc.PlanPreviewServiceStub(self.channel)
        return await call(stub.GetPlanPreview, request, deadline=60)

    async def wait_stage(self, stage_id: str, *, deployment_id: str = "deployment-1") -> None:
        """Wait until no handler of the stage runs."""
        stub = plugin_pb2_grpc.PluginStageServiceStub(self.channel)
        request = plugin_pb2.WaitStageRequest(deployment_id=deployment_id, stage_id=stage_id)
        await call(stub.WaitStage, request, deadline=30)

    async def exit_code(self, *, limit: float = 30) -> int:
        """Wait until the process has ended."""
        async with asyncio.timeout(limit):
            return await self.process.wait()


@asynccontextmanager
async def start_plugin(
    piped: FakePiped,
    command: Sequence[str | Path],
    *,
    name: str,
    mode: LaunchMode = LaunchMode.DESCRIPTOR,
    entry: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    roots: bytes | None = None,
) -> AsyncIterator[PluginProcess]:
    """Start a plugin and connect to it; it is killed at the end of the block if it still runs.

    What it has started is ended with it, as piped does it. Raises StuckError when that fails.

    `entry` is the rest of its entry in the piped file: `config`, `deployTargets`. `roots` are the
    certificates to trust, as PEM, for a plugin that is started with `--tls`.
    """
    described = {"name": name, "url": f"file:///plugins/{name}", "port": 0, **(entry or {})}
    variables = {**door.operator_environment(also=("PIPECD_",)), **(environment or {})}
    secrets = {PLUGIN_TOKEN_VARIABLE: piped.token, PIPED_TOKEN_VARIABLE: piped.piped_token}
    for variable, secret in secrets.items():
        variables.pop(variable, None)
        if secret:
            variables[variable] = secret
    mark = new_mark(Path(tempfile.gettempdir()), name)
    variables[MARK_VARIABLE] = str(mark)
    proof = [(PIPED_TOKEN_HEADER, piped.piped_token)] if piped.piped_token else []
    start = [*command, "start", "--piped-plugin-service", piped.address, *flags]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        if mode is LaunchMode.COMMAND_LINE:
            described["port"] = pick_port()
            process = await _spawn([*start, "--config", json.dumps(described)], variables, output)
        else:
            with _text_fd(json.dumps(described)) as given:
                number = given.fileno()
                start += ["--config-fd", str(number)]
                process = await _spawn(start, variables, output, [number])
        leader = Leader(pid=process.pid, started=start_of(process.pid))
        try:
            port = described["port"] or await _wait_for_port(piped, process, output)
            tls = ClientTls(roots=roots) if roots else None
            async with connect(f"localhost:{port}", tls=tls, metadata=lambda: proof) as channel:
                await _wait_connected(channel, process, output)
                yield PluginProcess(
                    name=name, process=process, port=port, channel=channel, file=output
                )
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await end_orphans(Search(leaders=(leader,), is_wanted=lambda it: it == mark))


class StartError(RuntimeError):
    """The plugin did not come up; the message has its output."""


async def _spawn(
    command: Sequence[str | Path],
    variables: Mapping[str, str],
    output: IO[str],
    pass_fds: Sequence[int] = (),
) -> door.Process:
    return await door.start(
        door.vouch_for(str(part) for part in command),
        env=variables,
        pass_fds=pass_fds,
        stdout=output,
        stderr=output,
    )


async def _wait_for_port(piped: FakePiped, process: door.Process, output: IO[str]) -> int:
    told = piped.wait_until(lambda: any(each.pid == process.pid for each in piped.ready))
    await _wait_unless_ended(told, process, output)
    return next(each.port for each in piped.ready if each.pid == process.pid)


async def _wait_connected(channel: Channel, process: door.Process, output: IO[str]) -> None:
    await _wait_unless_ended(wait_until_ready(channel, limit=START_LIMIT_SECONDS), process, output)


async def _wait_unless_ended(
    waiting: Coroutine[Any, Any, None], process: door.Process, output: IO[str]
) -> None:
    async with asyncio.TaskGroup() as tasks:
        wanted = tasks.create_task(waiting)
        ended = tasks.create_task(process.wait())
        await asyncio.wait([wanted, ended], return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()
        ended.cancel()
    if wanted.cancelled():
        raise StartError("\n".join(["the plugin ended before it was ready", *_lines(output)]))


def _lines(output: IO[str]) -> list[str]:
    output.seek(0)
    return output.read().splitlines()


def _text_fd(text: str) -> Any:
    """An open file that holds a text, to be inherited."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as given:
        given.write(text)
    return os.fdopen(reader)


def example_source(
    directory: Path | None = None, plugins: Mapping[str, Any] | None = None
) -> source_pb2.DeploymentSource:
    """The files of a commit, with the application file that names these plugins' options."""
    file = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {"name": "shop", "plugins": dict(plugins or {})},
    }
    return source_pb2.DeploymentSource(
        application_directory=str(directory or ""),
        commit_hash=example_deployment().trigger.commit.hash,
        application_config=json.dumps(file).encode(),
        application_config_filename="app.pipecd.yaml",
    )


def example_deployment() -> deployment_pb2.Deployment:
    """A deployment that keeps every rule of the wire."""
    return deployment_pb2.Deployment(
        id="deployment-1",
        application_id="application-1",
        application_name="shop",
        piped_id="piped-1",
        project_id="project-1",
        git_path=common_pb2.ApplicationGitPath(
            repo=common_pb2.ApplicationGitRepository(
                id="repo-1", remote="https://git.example.com/shop.git", branch="main"
            ),
            path="apps/shop",
            config_filename="app.pipecd.yaml",
        ),
        labels={"env": "dev"},
        trigger=deployment_pb2.DeploymentTrigger(
            commit=deployment_pb2.Commit(
                hash="0123456789abcdef0123456789abcdef01234567",
                message="Sell more",
                author="dev",
                branch="main",
                created_at=1_704_196_800,
            ),
            timestamp=1_704_196_800,
        ),
        summary="Deploy with the pipeline",
        created_at=1_704_196_800,
        updated_at=1_704_196_800,
    )
