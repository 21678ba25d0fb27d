# SPDX-License-Identifier: Apache-2.0
"""What the run of a deployment needs from the rest of piped, built once in `app.py`."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import Deployment
from piped.facts import Facts
from piped.plan.planner import Planner
from piped.plan.protocols import CommitSources, Plugins
from piped.plan.stages import Clock
from piped.report.commands import CommandInbox
from piped.report.statuses import StatusReporter


class RunScope(Protocol):
    """What is open while a deployment is planned or runs: its metadata, and its secrets."""

    def open(self, deployment: Deployment) -> AbstractContextManager[object]:
        """Keep it open while the block runs."""


class Permit(Protocol):
    """Whether this instance of the piped may start work."""

    epoch: int
    """Another one when another instance has been at work meanwhile; 0 where there are no leases."""

    @property
    def held(self) -> bool:
        """Is this the instance that works?"""

    def may_begin(self, *, begun: bool) -> bool:
        """May a deployment be taken up, a new one or one that another instance may have begun?"""

    async def wait_for_deployment(self, *, begun: bool) -> None:
        """Wait until a deployment may be taken up."""

    async def wait_for_stage(self, *, rollback: bool) -> None:
        """Wait until a stage may start."""

    async def wait_until_lost(self) -> None:
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


class LastSuccesses(Protocol):
    """What each application runs: its last deployment that succeeded."""

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
    read_deployment: Callable[[str], Awaitable[Deployment]]
    """Returns a deployment as the control plane has it."""
    clock: Clock
