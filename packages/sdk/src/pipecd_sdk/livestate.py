# SPDX-License-Identifier: Apache-2.0
"""What really runs, and whether it is what should run: the interfaces LiveState and Drift.

A plugin takes the ones it wants. Both are asked for one deploy target at a time; what is found for
all of them becomes one answer in `_observation`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

from pipecd_sdk.clock import Clock
from pipecd_sdk.context import DeployTarget, Source
from pipecd_sdk.results import StageFailedError
from pipecd_sdk.shared import SharedObjects
from pipecd_sdk.tools import Tools


class Health(IntEnum):
    """How something that runs is doing, with the numbers of the wire."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that runs. Its parents are named by their ids.

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
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    """None when the platform does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSnapshot:
    """What runs on one deploy target."""

    resources: Sequence[Resource] = ()
    data: Any = None
    """What `drift` needs to know of it besides; it goes nowhere else."""


class SyncStatus(IntEnum):
    """Does what runs match what should run? With the numbers of the wire."""

    UNKNOWN = 0
    SYNCED = 1
    OUT_OF_SYNC = 3
    INVALID_CONFIG = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncState:
    """The answer to that, with its reason: a line, and everything there is to say.

    Example:
        SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason="1 changed", reason=the_diff)
    """

    status: SyncStatus
    short_reason: str = ""
    reason: str = ""


class TargetError(StageFailedError):
    """A deploy target cannot be looked at. The message is what people see.

    Example:
        raise TargetError("the cluster does not answer", hint="is its certificate still valid?")
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveContext:
    """What there is to look with."""

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
    """A plugin that can say what runs.

    Example:
        class Site(DeploymentPlugin, LiveState):
            async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
                return LiveSnapshot(resources=[Resource(id="site", name="site", kind="Site")])
    """

    @abstractmethod
    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        """Look at one deploy target; raises TargetError when that is not possible."""


class Drift(ABC):
    """A plugin that can say whether what runs is what should run.

    Example:
        class Site(DeploymentPlugin, LiveState, Drift):
            async def drift(
                self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot
            ) -> SyncState:
                return SyncState(status=SyncStatus.SYNCED)
    """

    @abstractmethod
    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        """Compare what `live_state` found, empty without LiveState, with `ctx.source`."""
