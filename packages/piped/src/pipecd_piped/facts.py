# SPDX-License-Identifier: Apache-2.0
"""Facts: typed events inside piped, published once and passed to their subscribers.

A publisher does not know the subscribers. They are called in the order of their subscription,
before `publish` returns, so each of them gets the facts about one application in order. An
exception of a subscriber is raised to the publisher.

Only the subscribers of `Planned` are awaited: the reporter delivers the plan to the control plane
before the first stage begins, because logs and metadata of a stage need the stage there. All others
return at once: the reporter queues its report in the outbox (a stage waits for
`StatusReporter.wait_durable` before its plugin runs it), metrics are updated, script records and
line numbers of a completed deployment are dropped, and the live state of its application, or of one
that a plugin has announced, is read again.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pipecd_wire.model.application_pb2 import ApplicationSyncState
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipecd.push.push_pb2 import RegisterEventRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """A new deployment was created on the control plane."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStarted:
    """A deployment left the queue and is being planned."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The stages of a deployment are planned, or rollback stages were added to them."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """The status of a deployment has changed to running or rolling back."""

    deployment: Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentNoted:
    """Something is to be known of a deployment after a restart: shared metadata."""

    deployment: Deployment
    notes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChanged:
    """The status of a stage has changed."""

    deployment: Deployment
    stage: PipelineStage


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForApproval:
    """A stage has begun that waits for an approval by users."""

    deployment: Deployment
    stage: PipelineStage


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentCompleted:
    """A deployment is completed."""

    deployment: Deployment
    was_started: bool
    """False when it was cancelled in the queue: then another one of its application may run."""
    events: tuple[RegisterEventRequest, ...] = ()
    """What is registered because it succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncChanged:
    """The sync state of an application was determined."""

    application_id: str
    state: ApplicationSyncState


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFailed:
    """A plugin's process could not be fetched or started, or has ended."""

    plugin: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStatesAnnounced:
    """A plugin says that what runs of applications has changed; they may be anybody's."""

    plugin: str
    application_ids: tuple[str, ...]


Fact = (
    Triggered
    | DeploymentStarted
    | Planned
    | StatusChanged
    | DeploymentNoted
    | StageChanged
    | WaitsForApproval
    | DeploymentCompleted
    | SyncChanged
    | PluginFailed
    | LiveStatesAnnounced
)

Kind = TypeVar(
    "Kind",
    Triggered,
    DeploymentStarted,
    Planned,
    StatusChanged,
    DeploymentNoted,
    StageChanged,
    WaitsForApproval,
    DeploymentCompleted,
    SyncChanged,
    PluginFailed,
    LiveStatesAnnounced,
)


class Facts:
    """Passes published facts to their subscribers."""

    def __init__(self) -> None:
        self._handlers: defaultdict[type[Fact], list[Callable[[Any], None]]] = defaultdict(list)
        self._planned: list[Callable[[Planned], Awaitable[None]]] = []

    def subscribe(self, kind: type[Kind], handler: Callable[[Kind], None]) -> None:
        """Call the handler with every later fact of a kind."""
        self._handlers[kind].append(handler)

    def subscribe_awaited(self, handler: Callable[[Planned], Awaitable[None]]) -> None:
        """Call and await the handler with every later plan."""
        self._planned.append(handler)

    def publish(self, fact: Fact) -> None:
        """Call the subscribers of a fact, one after the other."""
        for handler in self._handlers[type(fact)]:
            handler(fact)

    async def publish_planned(self, fact: Planned) -> None:
        """Publish a plan; returns when the awaited subscribers have returned.

        Raises what they raise: then the remaining subscribers are not called.
        """
        for handler in self._planned:
            await handler(fact)
        self.publish(fact)
