# SPDX-License-Identifier: Apache-2.0
"""A host of real plugin processes, and a control plane that only remembers."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.message import Message

from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.plugins import PluginBackend, PluginLimits, ToolsFolder
from pipecd_piped.report.logs import SpooledStageLogs
from pipecd_piped.report.metadata import MetadataStores
from pipecd_runtime.ports import pick_port
from pipecd_test_support.plugin_world import GivenCommands, PluginControlPlane, PluginWorld
from pipecd_test_support.web_server import WebServer
from pipecd_wire.rpc import connect, serving

PROGRAM: Final = Path(__file__).parent / "programs" / "odd_plugin.py"


async def _kept(_application_id: str, _method: str, _request: Message) -> None:
    """Keep nothing: the control plane of these tests is never away."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PluginWorld]:
    control_plane, commands = PluginControlPlane(), GivenCommands()
    async with AsyncExitStack() as opened:
        port = await opened.enter_async_context(
            serving(control_plane.endpoints(), "127.0.0.1:0", grace_seconds=0)
        )
        control = ControlPlane(await opened.enter_async_context(connect(f"127.0.0.1:{port}")))
        logs = await opened.enter_async_context(SpooledStageLogs(control).open())
        backend = PluginBackend(
            logs=logs,
            metadata=MetadataStores(control, _kept),
            commands=commands,
            control=control,
            tools=ToolsFolder(tmp_path / "tools"),
        )
        yield PluginWorld(tmp_path, PROGRAM, backend, control_plane, commands)


@pytest.fixture
def quick() -> PluginLimits:
    """Limits for plugins that fail, so that failing does not take long."""
    return PluginLimits(
        ready_seconds=15,
        planning_seconds=1,
        first_pause_seconds=0.05,
        longest_pause_seconds=0.2,
        ping_interval_seconds=0.2,
        reconnect_seconds=0.5,
        hurry_seconds=0.5,
    )


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], None]:
    """Install an executable under a name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def install(executable: Path, name: str) -> None:
        (folder / name).symlink_to(executable)

    return install


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A web server that plugins come from."""
    with WebServer() as serving:
        yield serving


@pytest.fixture
def free_port() -> int:
    return pick_port()
