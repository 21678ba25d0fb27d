# SPDX-License-Identifier: Apache-2.0
"""A local copy of what the control plane stores about this piped, with a stream of its changes.

`pipecd_piped.controlplane.watch` fills it; trigger and schedule read it and follow its changes. The
statuses of deployments originate in piped itself: those held here may be older than the
scheduler's, never newer.
"""

import asyncio
import itertools
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pipecd_model.command import is_handled
from pipecd_model.deployment import is_completed
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import (
    ApplicationControl,
    DeploymentRecord,
    ProjectRules,
)
from pipecd_wire.pipecd.push import push_pb2 as push

STAGE_COMMANDS: Final = frozenset({Command.APPROVE_STAGE, Command.SKIP_STAGE})

HANDLED_MEMORY_SECONDS: Final = 600.0
"""How long a handled command is remembered at least: a listing in progress may still have it."""

HANDLED_KEPT: Final = 1000
"""How many of the last handled commands are remembered for longer, until the next listing.

Commands come from the control plane: while it is away these are all whose outcome it may not know.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHint:
    """A notice of a git host, pushed by the control plane, that a branch has moved."""

    repository_id: str
    branch: str
    commit_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A change of the state; each entity in it is complete.

    A snapshot holds all entities of each kind that was listed for it.
    """

    snapshot: bool = False
    applications: tuple[Application, ...] = ()
    removed_applications: frozenset[str] = field(default_factory=frozenset)
    deployments: tuple[Deployment, ...] = ()
    commands: tuple[Command, ...] = ()
    own_commands: tuple[push.Command, ...] = ()
    """Commands that only our control plane has."""
    git_hints: tuple[GitHint, ...] = ()
    controls: tuple[ApplicationControl, ...] = ()
    records: tuple[DeploymentRecord, ...] = ()
    rules: ProjectRules | None = None
    """None when they did not change."""


class StateChanges:
    """The changes since the subscription was made, in order: `async for change in changes`.

    A subscription after the first snapshot starts with a snapshot of the current state.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[StateChange] = asyncio.Queue()

    def __aiter__(self) -> "StateChanges":
        return self

    async def __anext__(self) -> StateChange:
        return await self._queue.get()

    def put(self, change: StateChange) -> None:
        """Queue a change; only `ControlPlaneState` calls it."""
        self._queue.put_nowait(change)


class ControlPlaneState:
    """Applications, open deployments and open commands of this piped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._applications: dict[str, Application] = {}
        self._deployments: dict[str, Deployment] = {}
        self._commands: dict[str, Command] = {}
        self._own_commands: dict[str, push.Command] = {}
        self._controls: dict[str, ApplicationControl] = {}
        self._records: dict[str, DeploymentRecord] = {}
        self.rules = ProjectRules()
        """Windows and emergency stop of the project; empty at a control plane without them."""
        self._handled: dict[str, float] = {}
        self._filled = asyncio.Event()
        # A subscription without references must not collect changes for ever.
        self._subscribers: weakref.WeakSet[StateChanges] = weakref.WeakSet()

    @property
    def applications(self) -> Mapping[str, Application]:
        """The enabled applications of this piped."""
        return MappingProxyType(self._applications)

    @property
    def deployments(self) -> Mapping[str, Deployment]:
        """The deployments that were not completed in the last update of the control plane."""
        return MappingProxyType(self._deployments)

    @property
    def commands(self) -> Mapping[str, Command]:
        """The commands that this piped has not handled yet."""
        return MappingProxyType(self._commands)

    @property
    def own_commands(self) -> Mapping[str, push.Command]:
        """The commands of our control plane alone that this piped has not handled yet."""
        return MappingProxyType(self._own_commands)

    def control(self, application_id: str) -> ApplicationControl:
        """Returns hold, pin and freeze of an application; empty when it has none."""
        return self._controls.get(application_id, ApplicationControl(application_id=application_id))

    def record(self, deployment_id: str) -> DeploymentRecord:
        """Returns what is known of a deployment beside upstream's entity; empty for nothing."""
        return self._records.get(deployment_id, DeploymentRecord(deployment_id=deployment_id))

    async def wait_filled(self) -> None:
        """Wait until the state has its first snapshot."""
        await self._filled.wait()

    def changes(self) -> StateChanges:
        """Subscribe to changes; the caller must hold the result as long as it listens."""
        changes = StateChanges()
        if self._filled.is_set():
            changes.put(self._everything())
        self._subscribers.add(changes)
        return changes

    def stage_commands(self, deployment_id: str, stage_id: str) -> list[Command]:
        """Returns the open commands of one stage, oldest first."""
        found = [
            command
            for command in self._commands.values()
            if command.type in STAGE_COMMANDS
            and (command.deployment_id, command.stage_id) == (deployment_id, stage_id)
        ]
        return sorted(found, key=lambda command: command.created_at)

    async def watch_stage_commands(
        self, deployment_id: str, stage_id: str
    ) -> AsyncGenerator[Command, None]:
        """Yields the commands of one stage, each once, as they arrive; never ends."""
        changes = self.changes()
        told: set[str] = set()
        while True:
            for command in self.stage_commands(deployment_id, stage_id):
                if command.id not in told:
                    told.add(command.id)
                    yield command
            await anext(changes)

    def is_deploying(self, application_id: str) -> bool:
        """Returns whether an application has a deployment that is not completed."""
        return any(each.application_id == application_id for each in self._deployments.values())

    def forget_command(self, command_id: str) -> None:
        """Forget a command for good: no later listing brings it back. See `CommandInbox.finish`."""
        now = self._handled[command_id] = self._clock()
        oldest = itertools.islice(self._handled.items(), max(0, len(self._handled) - HANDLED_KEPT))
        for each, at in list(oldest):
            if now - at >= HANDLED_MEMORY_SECONDS:
                del self._handled[each]
        self._commands.pop(command_id, None)
        self._own_commands.pop(command_id, None)

    def replace(
        self,
        *,
        applications: Iterable[Application] | None = None,
        deployments: Iterable[Deployment] | None = None,
        commands: Iterable[Command] | None = None,
        own_commands: Iterable[push.Command] | None = None,
        controls: Iterable[ApplicationControl] | None = None,
        records: Iterable[DeploymentRecord] | None = None,
        rules: ProjectRules | None = None,
    ) -> None:
        """Replace each given kind with a full listing: what is not in it is removed."""
        removed: frozenset[str] = frozenset()
        if applications is not None:
            listed = {application.id: application for application in applications}
            removed = frozenset(self._applications.keys() - listed.keys())
            self._applications = listed
        if deployments is not None:
            self._deployments = {each.id: each for each in deployments}
        if commands is not None:
            self._replace_commands({command.id: command for command in commands})
        if own_commands is not None:
            self._own_commands = {each.id: each for each in own_commands if self._concerns(each)}
        if controls is not None:
            self._controls = {each.application_id: each for each in controls}
        if records is not None:
            self._records = {each.deployment_id: each for each in records}
        if rules is not None:
            self.rules = rules
        self._filled.set()
        self._publish(
            StateChange(
                snapshot=True,
                applications=() if applications is None else tuple(self._applications.values()),
                removed_applications=removed,
                deployments=() if deployments is None else tuple(self._deployments.values()),
                commands=() if commands is None else tuple(self._commands.values()),
                own_commands=() if own_commands is None else tuple(self._own_commands.values()),
                controls=() if controls is None else tuple(self._controls.values()),
                records=() if records is None else tuple(self._records.values()),
                rules=rules,
            )
        )

    def merge(self, change: StateChange) -> None:
        """Apply a change, and publish it to the subscribers."""
        for application in change.applications:
            self._applications[application.id] = application
        for application_id in change.removed_applications:
            self._applications.pop(application_id, None)
        self._controls.update({each.application_id: each for each in change.controls})
        self._records.update({each.deployment_id: each for each in change.records})
        if change.rules is not None:
            self.rules = change.rules
        for deployment in change.deployments:
            if is_completed(deployment.status):
                self._deployments.pop(deployment.id, None)
            else:
                self._deployments[deployment.id] = deployment
        new = [command for command in change.commands if self._is_open(command)]
        for command in change.commands:
            self._commands.pop(command.id, None)
        for command in new:
            self._commands[command.id] = command
        own = [each for each in change.own_commands if self._concerns(each)]
        self._own_commands.update({each.id: each for each in own})
        self._publish(
            StateChange(
                applications=change.applications,
                removed_applications=change.removed_applications,
                deployments=change.deployments,
                commands=tuple(new),
                own_commands=tuple(own),
                git_hints=change.git_hints,
                controls=change.controls,
                records=change.records,
                rules=change.rules,
            )
        )

    def forget_deployment(self, deployment_id: str) -> None:
        """Forget a deployment that this piped has completed."""
        self._deployments.pop(deployment_id, None)
        self._records.pop(deployment_id, None)

    def _is_open(self, command: Command) -> bool:
        return not is_handled(command) and command.id not in self._handled

    def _concerns(self, command: push.Command) -> bool:
        """Returns whether a command is open and about an application, not about piped itself."""
        return bool(command.application_id) and command.id not in self._handled

    def _replace_commands(self, listed: dict[str, Command]) -> None:
        now = self._clock()
        self._handled = {
            command_id: at
            for command_id, at in self._handled.items()
            if command_id in listed or now - at < HANDLED_MEMORY_SECONDS
        }
        self._commands = {
            command_id: command for command_id, command in listed.items() if self._is_open(command)
        }

    def _everything(self) -> StateChange:
        return StateChange(
            snapshot=True,
            applications=tuple(self._applications.values()),
            deployments=tuple(self._deployments.values()),
            commands=tuple(self._commands.values()),
            own_commands=tuple(self._own_commands.values()),
            controls=tuple(self._controls.values()),
            records=tuple(self._records.values()),
            rules=self.rules,
        )

    def _publish(self, change: StateChange) -> None:
        for subscriber in list(self._subscribers):
            subscriber.put(change)
