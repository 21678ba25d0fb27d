# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a command: it arrives with the control plane's state, and is finished once.

The component that carries a command out finishes it: its outcome is reported, and the state forgets
it, so that no later listing brings it back. Commands to a stage (approve, skip) are read by the
stage's plugin, perhaps several of them, and it does not report which of them it used: all open ones
are finished when the stage ends, whatever its status is. Until then they stay open, so that a
plugin or piped that is restarted gets them again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pipecd_piped.controlplane.client import OWN_COMMAND_HANDLED
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.report.outbox import Outbox
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, COMMAND_SUCCEEDED, Command
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pb

AnyCommand = Command | push.Command
"""A command of upstream's, or one that only our control plane has."""

REASON: Final = "reason"
"""Key in the metadata of a failed command: the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """The outcome of a command."""

    succeeded: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    output: bytes = b""

    @classmethod
    def fail(cls, reason: str) -> "CommandOutcome":
        """Returns the outcome of a command that could not be carried out."""
        return cls(succeeded=False, metadata={REASON: reason})


SUCCEEDED: Final = CommandOutcome()


class CommandInbox:
    """Finishes the open commands of this piped."""

    def __init__(
        self, state: ControlPlaneState, outbox: Outbox, clock: Callable[[], float] = time.time
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._clock = clock

    def finish(self, command: AnyCommand, outcome: CommandOutcome = SUCCEEDED) -> None:
        """Report the outcome of a command, and forget the command."""
        if isinstance(command, push.Command):
            report = push.ReportCommandHandledRequest(
                command_id=command.id,
                succeeded=outcome.succeeded,
                reason=outcome.metadata.get(REASON, ""),
            )
            self._outbox.put(command.application_id or command.id, OWN_COMMAND_HANDLED, report)
        else:
            self._outbox.put(
                lane_of(command),
                "ReportCommandHandled",
                pb.ReportCommandHandledRequest(
                    command_id=command.id,
                    status=COMMAND_SUCCEEDED if outcome.succeeded else COMMAND_FAILED,
                    metadata=outcome.metadata,
                    handled_at=max(1, int(self._clock())),
                    output=outcome.output,
                ),
            )
        self._state.forget_command(command.id)

    def finish_stage(self, deployment_id: str, stage_id: str) -> None:
        """Finish all open commands of a stage that has ended."""
        for command in self._state.stage_commands(deployment_id, stage_id):
            self.finish(command)


def lane_of(command: Command) -> str:
    """Returns the lane of a command's outcome: that of its application, where it has one.

    A client waits for a preview: it has a lane of its own, and never queues behind the reports of
    an application.
    """
    if command.type == Command.BUILD_PLAN_PREVIEW:
        return command.id
    return command.application_id or command.id
