# SPDX-License-Identifier: Apache-2.0
"""Changes: published to listeners once they are committed.

A change carries ids only and the listener reads the row, so a change may be delivered twice, and
several changes of one entity may be delivered as one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class ChangeKind(Enum):
    """What a change is about."""

    APPLICATION = "application"
    DEPLOYMENT = "deployment"
    COMMAND = "command"
    PUSH_COMMAND = "push-command"
    PIPED = "piped"
    PLUGINS = "plugins"
    LEASE = "lease"
    STAGE_LOG = "stage-log"
    API_KEY = "api-key"
    EVENT = "event"
    CHAIN = "chain"
    TRACE = "trace"
    LIVE_STATE = "live-state"
    PROJECT = "project"
    SESSION = "session"
    LABELS = "labels"
    """The labels of an application, deployment or event; published beside the change itself."""
    CONTROL = "control"
    """Hold, pin or freeze of an application."""
    RECORD = "record"
    """What is known of a deployment beside upstream's entity."""
    RULES = "rules"
    """Windows and emergency stop of a project, whose id it has."""
    QUEUE = "queue"
    """What the deployments wait for that a piped has queued."""
    QUESTION = "question"
    """Somebody asks a piped; nothing of it is stored."""
    GIT_HINT = "git-hint"
    """A branch that a piped watches may have moved; nothing of it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """What a listener subscribes to: all changes of a project, of a piped, or of one entity."""

    kind: str
    id: str


def project_topic(project_id: str) -> Topic:
    return Topic(kind="of-project", id=project_id)


def piped_topic(piped_id: str) -> Topic:
    return Topic(kind="of-piped", id=piped_id)


def topic(kind: ChangeKind, thing_id: str) -> Topic:
    return Topic(kind=kind.value, id=thing_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entity that was written."""

    kind: ChangeKind
    id: str
    project_id: str
    piped_id: str = ""
    """The piped that the change is delivered to; empty when no piped needs it."""

    def topics(self) -> Iterator[Topic]:
        yield topic(self.kind, self.id)
        yield project_topic(self.project_id)
        if self.piped_id:
            yield piped_topic(self.piped_id)


OnCommit = Callable[[Sequence[Change]], None]
"""Called with the changes of each commit, on the event loop, before the writers' calls return."""
