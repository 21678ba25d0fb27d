# SPDX-License-Identifier: Apache-2.0
"""A piped that does nothing but host one plugin, for a test that kills it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from pipecd_model.config import PluginConfig
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.plugins import PluginBackend, PluginHost, ToolsFolder
from pipecd_piped.report.logs import SpooledStageLogs
from pipecd_piped.report.metadata import MetadataStores
from pipecd_wire.rpc import connect


async def _kept(_application_id: str, _method: str, _request: object) -> None:
    """There is no outbox here, and nothing to keep."""


async def main(url: str, record: str, folder: Path) -> None:
    config = PluginConfig(name="odd", url=url, config={"record": record, "manners": "go"})
    no_commands: Any = None
    async with connect("127.0.0.1:1") as channel:
        control = ControlPlane(channel)
        backend = PluginBackend(
            logs=SpooledStageLogs(control),
            metadata=MetadataStores(control, _kept),
            commands=no_commands,
            control=control,
            tools=ToolsFolder(folder / "tools"),
        )
        async with PluginHost([config], data_dir=folder, backend=backend):
            await asyncio.sleep(3600)


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
