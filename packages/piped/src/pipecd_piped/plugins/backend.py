# SPDX-License-Identifier: Apache-2.0
"""The dependencies of the plugins' calls on the rest of piped, built in `parts.py`.

Plugins call piped on their private port (`service` and `management` beside this module). Stage logs
and metadata go to `pipecd_piped.report`, shared objects to the control plane; the commands of a
stage come from the state that the control plane has sent; tools are installed here.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.plugins.tools import ToolsFolder
from pipecd_piped.report.masked import Logs
from pipecd_piped.report.metadata import MetadataStores
from pipecd_piped.report.numbering import LineNumbers
from pipecd_piped.secrets import KnownSecrets
from pipecd_wire.model.command_pb2 import Command


class StageCommandSource(Protocol):
    """The source of the APPROVE_STAGE and SKIP_STAGE commands of a stage."""

    def stage_commands(self, deployment_id: str, stage_id: str) -> Sequence[Command]:
        """Returns the commands that are known now, the oldest first, each until the stage ends."""

    def watch_stage_commands(
        self, deployment_id: str, stage_id: str
    ) -> AsyncGenerator[Command, None]:
        """Yields the commands that are known now, then each new one; may go on for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginBackend:
    """Everything that serves the calls of plugins."""

    logs: Logs
    metadata: MetadataStores
    commands: StageCommandSource
    control: ControlPlane
    tools: ToolsFolder
    numbers: LineNumbers = field(default_factory=LineNumbers)
    """Numbers the log lines of plugins that are not managed."""
    secrets: KnownSecrets = field(default_factory=KnownSecrets)
    """The decrypted secrets: given to plugins on request, and masked in their texts."""
    announce_live_states: Callable[[str, Sequence[str]], None] = lambda _plugin, _ids: None
    """Takes the name of a plugin and the ids of applications that it says have changed."""
