# SPDX-License-Identifier: Apache-2.0
"""What the run of a deployment needs from the rest of piped, built once in `app.py`."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from piped.plan.planner import Planner
from piped.plan.protocols import Plugins, Sources
from piped.plan.stages import Clock
from piped.report.statuses import Statuses


class Commands(Protocol):
    """The commands that wait to be handled."""

    def stage_commands(self, deployment_id: str, stage_id: str) -> Sequence[Command]:
        """Those for one stage."""

    def handled(self, command_id: str) -> None:
        """Forget one."""


class Metadata(Protocol):
    """What plugins keep with a deployment, there for them while it runs."""

    def opened(self, deployment: Deployment) -> AbstractContextManager[object]:
        """Open it while the block runs."""


class Permit(Protocol):
    """Whether this instance of the piped may start work."""

    epoch: int
    """Another one when another instance has been at work meanwhile; 0 where there are no leases."""

    @property
    def held(self) -> bool:
        """Is this the instance that works?"""

    def may_begin(self, *, begun: bool) -> bool:
        """May a deployment be taken up, a new one or one that another instance may have begun?"""

    async def deployment(self, *, begun: bool) -> None:
        """Wait until it may."""

    async def stage(self, *, rollback: bool) -> None:
        """Wait until a stage may start."""

    async def gone(self) -> None:
        """Wait until another instance goes on with what this one has begun."""


class Scripts(Protocol):
    """What stages run that outlives plugin and piped."""

    def stop(self, deployment_id: str, stage_id: str) -> bool:
        """Let nobody start the scripts of a stage, or start them again; are any on record?"""

    async def end(
        self, deployment_id: str, *, only: str | None = None, but: str | None = None
    ) -> int:
        """End the scripts of a deployment, `only` one stage's or all `but` those; how many lived.

        When this returns none lives, and none can start any more.
        """


class Successes(Protocol):
    """What each application runs: its last deployment that succeeded."""

    async def of(self, application_id: str) -> ApplicationDeploymentReference | None:
        """The last one, None when there was none yet."""

    def remember(self, application_id: str, success: ApplicationDeploymentReference) -> None:
        """Take a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Everything a run uses."""

    planner: Planner
    plugins: Plugins
    sources: Sources
    statuses: Statuses
    commands: Commands
    metadata: Metadata
    successes: Successes
    permit: Permit
    scripts: Scripts
    stored: Callable[[str], Awaitable[Deployment]]
    """The deployment as the control plane has it."""
    clock: Clock
