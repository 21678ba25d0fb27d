# SPDX-License-Identifier: Apache-2.0
"""Live state and drift: the interfaces LiveState, LiveWatch and Drift.

A plugin implements the ones it wants. Both are called for one deploy target at a time;
`_observation` merges the results of all targets into one response.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any

import msgspec

from pipecd_sdk.clock import Clock
from pipecd_sdk.context import DeployTarget, Source
from pipecd_sdk.results import StageFailedError
from pipecd_sdk.shared import SharedObjects
from pipecd_sdk.tools import Tools


class Health(IntEnum):
    """The health of a resource, with the numbers of the wire.

    Example:
        Resource(id="web", name="web", health=Health.HEALTHY)
    """

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that runs on a deploy target. Its parents are named by their ids.

    Example:
        Resource(id="web/pod-1", name="pod-1", kind="Pod", parents=["web"], health=Health.HEALTHY)
    """

    id: str
    """Unlike every other resource of the same deploy target."""
    name: str
    kind: str = ""
    parents: Sequence[str] = ()
    health: Health = Health.UNKNOWN
    description: str = ""
    """Why it is healthy or not, in a sentence."""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    created_at: datetime | None = None
    """None when the platform does not say."""


class LiveSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that run on one deploy target, at one moment.

    Example:
        LiveSnapshot(resources=[Resource(id="web", name="web", kind="Deployment")])
    """

    resources: Sequence[Resource] = ()
    data: Any = None
    """Whatever `drift` needs besides the resources; it goes nowhere else."""


class SyncStatus(IntEnum):
    """Whether what runs matches what should run, with the numbers of the wire.

    Example:
        SyncState(status=SyncStatus.SYNCED)
    """

    UNKNOWN = 0
    SYNCED = 1
    OUT_OF_SYNC = 3
    INVALID_CONFIG = 4


class SyncState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a deploy target is in sync, with a short reason of one line and a full one.

    Example:
        SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason="1 changed", reason=the_diff)
    """

    status: SyncStatus
    short_reason: str = ""
    reason: str = ""


class TargetError(StageFailedError):
    """A deploy target cannot be read. The message is what people see.

    Example:
        raise TargetError("the cluster does not answer", hint="is its certificate still valid?")
    """


class LiveContext(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of reading live state.

    Example:
        async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
            kubectl = await ctx.tools.install(KUBECTL)
    """

    application_id: str
    application_name: str
    piped_id: str
    source: Source
    """What should run."""
    targets: Sequence[DeployTarget]
    clock: Clock
    tools: Tools
    shared: SharedObjects


class LiveState(ABC):
    """The interface of a plugin that can read what runs.

    Example:
        class Site(DeploymentPlugin, LiveState):
            async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
                return LiveSnapshot(resources=[Resource(id="site", name="site", kind="Site")])
    """

    @abstractmethod
    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        """Returns what runs on one deploy target. Raises TargetError when it cannot be read."""


class WatchContext(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of watching what runs.

    Example:
        async def watch(self, ctx: WatchContext) -> None:
            async for change in self.follow(ctx.targets):
                ctx.announce(change.application_id)
    """

    targets: Sequence[DeployTarget]
    """All of the piped file, whichever application they are for."""
    announce: Callable[[str], None]
    """Tells piped that what runs of an application has changed; it then asks for the live state.

    Returns at once. Calls that follow each other closely are sent as one. An application of
    somebody else does no harm.
    """


class LiveWatch(ABC):
    """The interface of a plugin that notices by itself when what runs has changed.

    Without it piped asks every minute; with it, people see a change within a second.

    Example:
        class Site(DeploymentPlugin, LiveState, LiveWatch):
            async def watch(self, ctx: WatchContext) -> None:
                async for change in self.follow(ctx.targets):
                    ctx.announce(change.application_id)
    """

    @abstractmethod
    async def watch(self, ctx: WatchContext) -> None:
        """Runs as long as the process, and is cancelled at its end.

        What is held open for live states (connections, watches) is opened and closed here.
        """


class Drift(ABC):
    """The interface of a plugin that can compare what runs with what should run.

    Example:
        class Site(DeploymentPlugin, LiveState, Drift):
            async def drift(
                self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot
            ) -> SyncState:
                return SyncState(status=SyncStatus.SYNCED)
    """

    @abstractmethod
    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        """Returns whether `live` matches `ctx.source`; it is empty for a plugin without LiveState.

        Raises TargetError when they cannot be compared.
        """
