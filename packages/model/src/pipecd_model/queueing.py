# SPDX-License-Identifier: Apache-2.0
"""The rules of an application's queue: what a newer deployment does to older ones. Pure: no I/O.

How an application queues is decided by its file at the commit of the newer deployment, and is kept
with that deployment, so that a restarted agent decides the same without reading git.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from pipecd_wire.model import deployment_pb2 as pb

QUEUE_KEY: Final = "pipecd/queue"
"""Key in a deployment's shared metadata: how it queues, as JSON."""

SUPERSEDED_BY_KEY: Final = "pipecd/superseded-by"
"""Key in a deployment's shared metadata: the newer deployment that took its place."""

INTERRUPTIBLE: Final = frozenset({"WAIT", "WAIT_APPROVAL", "ANALYSIS"})
"""Stages that change nothing, so that a newer deployment need not wait for their end."""


class QueueMode(StrEnum):
    """What a newer deployment of an application does while an older one is not completed."""

    QUEUE = "queue"
    """It waits for its turn."""
    SUPERSEDE = "supersede"
    """It replaces what waits, and interrupts what runs where that does no harm."""
    REJECT = "reject"
    """It is not made; the commit is decided about again when the open one is completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How a deployment queues: the mode, and the locks that it holds while it runs."""

    mode: QueueMode = QueueMode.QUEUE
    locks: tuple[str, ...] = ()


DEFAULT: Final = QueueSettings()


def encode_settings(mode: str, locks: Collection[str]) -> str | None:
    """Returns settings as the value of `QUEUE_KEY`; None when they are the default."""
    if mode == QueueMode.QUEUE and not locks:
        return None
    return json.dumps({"mode": mode, "locks": sorted(set(locks))}, separators=(",", ":"))


def read_settings(deployment: pb.Deployment) -> QueueSettings:
    """Returns how a deployment queues; the default for one that another agent has made."""
    kept = deployment.metadata_v2.shared.keyValues.get(QUEUE_KEY)
    if kept is None:
        return DEFAULT
    try:
        value: Any = json.loads(kept)
        return QueueSettings(
            mode=QueueMode(value["mode"]),
            locks=tuple(sorted({str(name) for name in value["locks"]})),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return DEFAULT


class Interruption(Enum):
    """What happens to the deployment that runs."""

    NONE = "none"
    NOW = "now"
    BEFORE_NEXT_STAGE = "before the next stage"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningView:
    """What the rules need to know of the deployment that runs."""

    stage: str = ""
    """The name of the forward stage that runs; empty while none does."""
    is_rolling_back: bool = False
    is_roll_back: bool = False
    """Whether a person brings the application back with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """What the rules need to know of a deployment that has not begun."""

    deployment_id: str
    is_roll_back: bool = False
    """Whether a person brings the application back with it."""
    is_overridden: bool = False
    """Whether a person lets it pass the rules."""
    is_blocked: bool = False
    """Whether something else than its place in the queue keeps it from beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueVerdict:
    """What a newer deployment does."""

    superseded: tuple[str, ...] = ()
    """Those that have not begun and never will."""
    running: Interruption = Interruption.NONE


def decide(
    mode: QueueMode,
    running: RunningView | None,
    waiting: Sequence[WaitingView],
    newer: WaitingView,
    *,
    may_begin: bool = True,
) -> QueueVerdict:
    """Returns what a newer deployment does to the one that runs and to those that wait.

    `waiting` are the older ones that have not begun. One that may not begin (`may_begin`) replaces
    what waits, and leaves alone what runs: that one is not stopped for nothing.
    """
    if not newer.is_roll_back and mode is not QueueMode.SUPERSEDE:
        return QueueVerdict()
    superseded = tuple(
        each.deployment_id for each in waiting if newer.is_roll_back or not each.is_roll_back
    )
    # Behind a roll-back that waits, the newer one waits as well: it interrupts nothing.
    is_next = len(superseded) == len(waiting)
    interruption = _interrupt(running) if may_begin and is_next else Interruption.NONE
    return QueueVerdict(superseded=superseded, running=interruption)


def _interrupt(running: RunningView | None) -> Interruption:
    """A rollback is never interrupted, neither that of a failed deployment nor a person's."""
    if running is None or running.is_rolling_back or running.is_roll_back:
        return Interruption.NONE
    if not running.stage or running.stage in INTERRUPTIBLE:
        return Interruption.NOW
    return Interruption.BEFORE_NEXT_STAGE


def find_passed(waiting: Collection[WaitingView]) -> frozenset[str]:
    """Returns those that may not begin, and that one with an override therefore passes.

    `waiting` are all of one application that have not begun. The mode of the queue does not matter:
    a person has said that the one with the override begins now.
    """
    if not any(each.is_overridden and not each.is_blocked for each in waiting):
        return frozenset()
    return frozenset(each.deployment_id for each in waiting if each.is_blocked)


def find_left_behind(begun: WaitingView, older: Collection[WaitingView]) -> frozenset[str]:
    """Returns the older ones that never begin because this one has begun before them.

    Only an override lets a deployment begin before older ones that go on waiting; what is older
    than what is then deployed must not be deployed over it.
    """
    if not begun.is_overridden:
        return frozenset()
    return frozenset(each.deployment_id for each in older if not each.is_roll_back)


def describe_supersession(
    newer_id: str, commit: str, *, overrider: str | None = None, reason: str = ""
) -> str:
    """Returns the sentence with which a superseded deployment ends.

    `overrider` is who gave the newer one an override, if that is why it came first.
    """
    sentence = f"superseded by the deployment {newer_id} of {commit[:7]}"
    if overrider is None:
        return sentence
    by = f" by {overrider}" if overrider else ""
    return f"{sentence} (override{by}{f': {reason}' if reason else ''})"


def describe_rejection(mode: QueueMode, commit: str, open_ids: Sequence[str]) -> str | None:
    """Returns why a commit makes no deployment now; None when it makes one.

    `open_ids` are the deployments of the application that are not completed, the next one first.
    """
    if mode is not QueueMode.REJECT or not open_ids:
        return None
    return (
        f"the commit {commit[:7]} is not deployed now: the deployment {open_ids[0]} is not"
        " completed, and the application file says queue.mode: reject"
    )
