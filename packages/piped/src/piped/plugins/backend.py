# SPDX-License-Identifier: Apache-2.0
"""What the calls of plugins need from the rest of piped; `app.py` puts it together.

Plugins call piped on their private port (`piped.plugins.service`, `piped.plugins.management`).
Stage logs and metadata go to `piped.report`, shared objects to the control plane, the commands of a
stage come from the mirror, tools are installed here.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipecd_wire.model.command_pb2 import Command
from piped.controlplane.client import ControlPlane
from piped.plugins.tools import ToolsFolder
from piped.report.masked import Logs
from piped.report.metadata import MetadataStores
from piped.report.numbering import LineNumbers
from piped.secrets import KnownSecrets


class StageCommandSource(Protocol):
    """The APPROVE_STAGE and SKIP_STAGE commands that a stage was given."""

    def stage_commands(self, deployment_id: str, stage_id: str) -> Sequence[Command]:
        """Those that are known now, the oldest first; the same ones again until the stage ends."""

    def watch_stage_commands(
        self, deployment_id: str, stage_id: str
    ) -> AsyncGenerator[Command, None]:
        """Those that are known now, then each new one as it comes; needs no end of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginBackend:
    """Everything a plugin's call can end in."""

    logs: Logs
    metadata: MetadataStores
    commands: StageCommandSource
    control: ControlPlane
    tools: ToolsFolder
    numbers: LineNumbers = field(default_factory=LineNumbers)
    """For lines of plugins that are not managed."""
    secrets: KnownSecrets = field(default_factory=KnownSecrets)
    """Those that are open: given to plugins, and taken out of what they say."""
