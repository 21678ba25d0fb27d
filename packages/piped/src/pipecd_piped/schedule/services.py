# SPDX-License-Identifier: Apache-2.0
"""The dependencies of a deployment's run on the rest of piped, built once in `parts.py`."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.facts import Facts
from pipecd_piped.plan.planner import Planner
from pipecd_piped.plan.protocols import CommitSources, Plugins
from pipecd_piped.plan.stages import Clock
from pipecd_piped.report.commands import CommandInbox
from pipecd_piped.report.statuses import StatusReporter
from pipecd_piped.schedule.turns import StageTurns
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import Deployment


class RunScope(Protocol):
    """Opens the metadata and the secrets of a deployment while it is planned or runs."""

    def open(self, deployment: Deployment) -> AbstractContextManager[object]:
        """Keep the metadata and the secrets of a deployment open while the block runs."""


class Permit(Protocol):
    """The lease: whether this instance of the piped may start work."""

    epoch: int
    """Changes when another instance has held the lease meanwhile; 0 where there are no leases."""

    @property
    def held(self) -> bool:
        """Returns whether this instance holds the lease."""

    def may_begin(self, *, begun: bool) -> bool:
        """Returns whether a deployment may start now.

        One that another instance may have `begun` may start later than a new one.
        """

    async def wait_for_deployment(self, *, begun: bool) -> None:
        """Wait until a deployment may start, see `may_begin`."""

    async def wait_for_stage(self, *, rollback: bool) -> None:
        """Wait until a stage may start."""

    async def wait_until_lost(self) -> None:
        """Wait until another instance has taken over what this one has begun."""


class Scripts(Protocol):
    """The scripts of stages, which outlive their plugin and piped."""

    def stop(self, deployment_id: str, stage_id: str) -> bool:
        """Forbid every further start of a stage's scripts; returns whether any are on record."""

    async def end(
        self, deployment_id: str, *, only: str | None = None, but: str | None = None
    ) -> int:
        """End the scripts of a deployment: `only` those of one stage, or all `but` those.

        Returns how many were running. Afterwards none runs, and none can start any more.
        """


class LastSuccesses(Protocol):
    """The last successful deployment of each application, which is what it runs."""

    async def get(self, application_id: str) -> ApplicationDeploymentReference | None:
        """Returns the last success of an application, None when there was none yet."""

    def remember(self, application_id: str, success: ApplicationDeploymentReference) -> None:
        """Replace the last success of an application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """Everything that the run of a deployment uses."""

    planner: Planner
    plugins: Plugins
    sources: CommitSources
    facts: Facts
    reports: StatusReporter
    commands: CommandInbox
    scope: RunScope
    successes: LastSuccesses
    permit: Permit
    scripts: Scripts
    turns: StageTurns
    read_deployment: Callable[[str], Awaitable[Deployment]]
    """Returns a deployment as the control plane has it."""
    clock: Clock
    state: ControlPlaneState = field(default_factory=ControlPlaneState)
    """Has the commands by which a person decides about a failed stage."""
