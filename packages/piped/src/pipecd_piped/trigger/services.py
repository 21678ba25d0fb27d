# SPDX-License-Identifier: Apache-2.0
"""Dependencies that all parts of the trigger share."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.report.commands import AnyCommand, CommandOutcome
from pipecd_piped.trigger.protocols import Calls, Configs
from pipecd_wire.model.deployment_pb2 import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerServices:
    """The rest of piped, as the trigger uses it."""

    state: ControlPlaneState
    configs: Configs
    calls: Calls
    on_created: Callable[[Deployment], None]
    """Hands a deployment that the control plane knows now to the scheduler."""
    find_open: Callable[[str], Sequence[str]] = lambda application_id: ()
    """Returns the deployments of an application that are not completed, the next one first."""
    clock: Callable[[], float] = time.time

    def refuse(self, command: AnyCommand, reason: str) -> None:
        """Report a command as failed, with the reason, and forget it."""
        self.calls.finish_command(command, CommandOutcome.fail(reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """How long the trigger waits for others."""

    unknown_application_seconds: float = 70.0
    """How long a command waits for its application, whose polled list may be a minute old."""
    unreachable_seconds: float = 10.0
    """How long a remote may be away before it is reported on the applications' pages."""
    fetch_seconds: float = 20.0
    """How long a command waits for a fetch; then the last known head is deployed."""
