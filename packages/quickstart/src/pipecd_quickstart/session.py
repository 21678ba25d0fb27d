# SPDX-License-Identifier: Apache-2.0
"""A running quickstart: control plane, piped and plugins up, applications registered."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipecd_model.errors import TimedOutError
from pipecd_quickstart import example
from pipecd_quickstart.folder import QuickstartFolder, SavedState, quote_for_yaml
from pipecd_quickstart.printing import say
from pipecd_quickstart.processes import (
    ProgramEndedError,
    RunningProgram,
    listening_address,
    program,
    running,
)
from pipecd_runtime.process import own, word
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.headers import AUTHORIZATION, format_api_key
from pipecd_wire.model import common_pb2, deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import (
    ApplicationServiceStub,
    DeploymentServiceStub,
    PipedServiceStub,
    ProjectServiceStub,
)
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.rpc import Channel, Retry, call, connect

if TYPE_CHECKING:  # these types exist for the checker alone
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub
    from pipecd_wire.pipecd.api.api_pb2_grpc import (
        ApplicationServiceAsyncStub,
        DeploymentServiceAsyncStub,
        PipedServiceAsyncStub,
        ProjectServiceAsyncStub,
    )

REPOSITORY: Final = "example"
PLUGINS: Final = ("wait", "waitapproval", "scriptrun", "files")

PIPED_CONFIG = """\
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: default
  pipedID: {piped_id}
  pipedKeyFile: {key_file}
  apiAddress: {address}
  repositories:
    - repoId: {repository}
      remote: {remote}
      branch: {branch}
  plugins:
    - name: wait
    - name: waitapproval
    - name: scriptrun
    - name: files
      deployTargets:
{targets}"""

TARGET = """\
        - name: {region}
          config:
            path: {path}
"""

PIPECTL = """\
#!/bin/sh
# pipectl, told where this quickstart is.
PIPECTL_ADDRESS={address} PIPECTL_API_KEY_FILE={key_file} PIPECTL_INSECURE=1 exec {pipectl} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickstartSession:
    """A running quickstart: its folder, its programs, and stubs to call its server."""

    folder: QuickstartFolder
    address: str
    piped: RunningProgram
    server: RunningProgram
    applications: dict[str, str]
    api: "APIServiceAsyncStub"
    live: "ApplicationServiceAsyncStub"
    deployments: "DeploymentServiceAsyncStub"
    project: "ProjectServiceAsyncStub"


@asynccontextmanager
async def open_session(folder: QuickstartFolder) -> AsyncIterator[QuickstartSession]:
    """Starts everything under the folder, with the state of an earlier start if there is one.

    The folder is locked by the caller.
    """
    example.create(folder)
    async with (
        _server(folder) as (server, address),
        connect_to(folder, address) as channel,
    ):
        memory = folder.recall()
        former, memory.port = memory.port, int(address.rpartition(":")[2])
        if former not in {0, memory.port}:
            say(f"another program listens on port {former} now: taking {memory.port}")
        api = APIServiceStub(channel)
        if not memory.piped_id:
            made = await call(
                api.RegisterPiped, pb.RegisterPipedRequest(name="quickstart"), retry=Retry()
            )
            folder.piped_key.touch(mode=0o600)
            folder.piped_key.write_text(made.key)
            memory.piped_id = made.id
        folder.remember(memory)
        _write_files(folder, memory, address)
        arguments = (
            *(*own("piped", "run", "--config-file"), word(folder.piped_config)),
            *(*own("--insecure", "--data-dir"), word(folder.piped)),
            *own("--grace-period", "24h", "--live-state-interval", "2s"),
        )
        say(f"starting piped and its plugins: {', '.join(PLUGINS)}")
        async with running("piped", arguments, folder.piped_log) as piped:
            await wait_until_ready(channel, piped)
            applications = ApplicationServiceStub(channel)
            await _register_applications(applications, folder, memory)
            yield QuickstartSession(
                folder=folder,
                address=address,
                piped=piped,
                server=server,
                applications=memory.applications,
                api=api,
                live=applications,
                deployments=DeploymentServiceStub(channel),
                project=ProjectServiceStub(channel),
            )


@asynccontextmanager
async def _server(folder: QuickstartFolder) -> AsyncIterator[tuple[RunningProgram, str]]:
    """Runs the control plane, on its former port if that is still free."""
    former = folder.recall().port
    for port in dict.fromkeys((former, 0)):
        since = folder.server_log.stat().st_size if folder.server_log.exists() else 0
        arguments = (
            *(*own("pipecd", "server", "--data-dir"), word(folder.control_plane)),
            *(*own("--listen"), word(f"127.0.0.1:{port}")),
        )
        async with running("the control plane", arguments, folder.server_log) as server:
            try:
                address = await listening_address(server, since=since)
            except ProgramEndedError:
                if port == 0 or not _is_port_taken(folder, since):
                    raise
                continue
            yield server, address
            return


def _is_port_taken(folder: QuickstartFolder, since: int) -> bool:
    """Returns whether the server said, after byte `since` of its log, that its port is taken."""
    return b"the port is taken" in folder.server_log.read_bytes()[since:]


def connect_to(folder: QuickstartFolder, address: str) -> AbstractAsyncContextManager[Channel]:
    """Connects to the control plane of a quickstart, as its administrator."""
    return connect(address, metadata=lambda: _credentials(folder))


def _credentials(folder: QuickstartFolder) -> list[tuple[str, str]]:
    return [(AUTHORIZATION, format_api_key(folder.admin_key.read_text().strip()))]


def _write_files(folder: QuickstartFolder, memory: SavedState, address: str) -> None:
    folder.piped_config.write_text(
        PIPED_CONFIG.format(
            piped_id=memory.piped_id,
            key_file=quote_for_yaml(folder.piped_key),
            address=address,
            repository=REPOSITORY,
            remote=quote_for_yaml(folder.repository),
            branch=example.BRANCH,
            targets="".join(
                TARGET.format(region=region, path=quote_for_yaml(folder.site(region)))
                for region in example.REGIONS
            ),
        )
    )
    folder.pipectl.write_text(
        PIPECTL.format(
            address=address,
            key_file=shlex.quote(str(folder.admin_key)),
            pipectl=shlex.quote(program("pipectl")),
        )
    )
    folder.pipectl.chmod(0o755)


async def wait_until_ready(
    channel: Channel, piped: RunningProgram, plugins: Collection[str] = PLUGINS
) -> None:
    """Waits until piped has connected and its plugins are ready."""
    pipeds: PipedServiceAsyncStub = PipedServiceStub(channel)
    not_ready = list(plugins)
    try:
        async with asyncio.timeout(60):
            while not_ready:
                if not piped.running:
                    raise piped.failure()
                answer = await call(pipeds.ListPipeds, api_pb2.ListPipedsRequest())
                ready = {
                    plugin.name
                    for item in answer.pipeds
                    for plugin in item.plugins
                    if plugin.state == push_pb2.PluginState.READY
                }
                not_ready = [name for name in plugins if name not in ready]
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TimedOutError(
            f"plugins not ready: {', '.join(not_ready)}", hint=f"see {piped.log}"
        ) from None


async def _register_applications(
    api: "ApplicationServiceAsyncStub", folder: QuickstartFolder, memory: SavedState
) -> None:
    for name in example.APPLICATIONS:
        # The repository may be older than this version of the example.
        if name in memory.applications or not (folder.repository / name).exists():
            continue
        request = api_pb2.AddApplicationRequest(
            name=name,
            piped_id=memory.piped_id,
            git_path=common_pb2.ApplicationGitPath(
                repo=common_pb2.ApplicationGitRepository(id=REPOSITORY),
                path=name,
                config_filename="app.pipecd.yaml",
            ),
            deploy_targets_by_plugin={
                "files": deployment_pb2.DeployTargets(deploy_targets=example.REGIONS)
            }
            if name == "website"
            else {},
        )
        made = await call(api.AddApplication, request)
        memory.applications[name] = made.application_id
        folder.remember(memory)
