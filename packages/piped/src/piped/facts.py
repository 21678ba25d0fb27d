# SPDX-License-Identifier: Apache-2.0
"""What happens in piped, published once: typed facts, and those who subscribe to them.

Whoever makes something true publishes it and knows nobody who wants to know. Subscribers are called
in the order of their subscription, before `publish` returns, so facts about one application reach
each of them in the order in which they became true. What a subscriber raises reaches the publisher.

Awaited are only the subscribers of `Planned`: the reporter delivers the plan to the control plane
before the first stage begins, because logs and metadata of a stage need the stage. All others only
take note: the reporter queues its report in the outbox (`StatusReporter.wait_durable` is what a
stage waits for before its plugin runs it), metrics count, script records and line numbers of a
completed deployment are dropped, and the live state of its application is read again.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pipecd_wire.model.application_pb2 import ApplicationSyncState
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """The control plane knows a new deployment."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStarted:
    """A deployment left the queue and is being planned."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A deployment has got its stages, or more of them."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """A deployment runs, or rolls back."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChanged:
    """A stage has another status."""

    deployment: Deployment
    stage: PipelineStage


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForApproval:
    """A stage has begun that goes on only when people approve it."""

    deployment: Deployment
    stage: PipelineStage


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentCompleted:
    """A deployment has come to its end."""

    deployment: Deployment
    was_started: bool
    """False when it was cancelled in the queue: then another one of its application may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncChanged:
    """An application is, or is not any more, what its repository says."""

    application_id: str
    state: ApplicationSyncState


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFailed:
    """A plugin's process could not be fetched or started, or has ended."""

    plugin: str
    reason: str


Fact = (
    Triggered
    | DeploymentStarted
    | Planned
    | StatusChanged
    | StageChanged
    | WaitsForApproval
    | DeploymentCompleted
    | SyncChanged
    | PluginFailed
)

Kind = TypeVar(
    "Kind",
    Triggered,
    DeploymentStarted,
    Planned,
    StatusChanged,
    StageChanged,
    WaitsForApproval,
    DeploymentCompleted,
    SyncChanged,
    PluginFailed,
)


class Facts:
    """Takes facts from their authors and gives them to all subscribers."""

    def __init__(self) -> None:
        self._handlers: defaultdict[type[Fact], list[Callable[[Any], None]]] = defaultdict(list)
        self._planned: list[Callable[[Planned], Awaitable[None]]] = []

    def subscribe(self, kind: type[Kind], handler: Callable[[Kind], None]) -> None:
        """Have every later fact of a kind given to a handler."""
        self._handlers[kind].append(handler)

    def subscribe_awaited(self, handler: Callable[[Planned], Awaitable[None]]) -> None:
        """Have every later plan given to a handler that is waited for."""
        self._planned.append(handler)

    def publish(self, fact: Fact) -> None:
        """Give a fact to its subscribers, one after the other."""
        for handler in self._handlers[type(fact)]:
            handler(fact)

    async def publish_planned(self, fact: Planned) -> None:
        """Publish a plan; returns when the awaited subscribers are done with it.

        Raises what they raise: then the others are not given it.
        """
        for handler in self._planned:
            await handler(fact)
        self.publish(fact)
