# SPDX-License-Identifier: Apache-2.0
"""What a person sees who opens an object: masked manifest, events, difference from git, logs.

Only objects of the application are opened: those that the watches have found below its own, and
that are still the same objects. Nothing of it is kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pipecd_plugin_kubernetes.client import Cluster, ClusterError, Object, ObjectRef
from pipecd_plugin_kubernetes.client.events import find_event_time
from pipecd_plugin_kubernetes.differences import DriftChange, ObjectDifference, format_nodes
from pipecd_plugin_kubernetes.fields import ShapeError, read_count, read_map, read_maps, read_text
from pipecd_plugin_kubernetes.livestate import LiveObject
from pipecd_plugin_kubernetes.livestate.records import read_uid
from pipecd_plugin_kubernetes.masking import mask_object
from pipecd_sdk import (
    ContainerLog,
    Details,
    ResourceEvent,
    ResourceGoneError,
    StageFailedError,
)
from pipecd_sdk.kit import yaml

MOST_CONTAINERS: Final = 8
"""Containers of a pod whose lines are read when none is named; each may have two logs."""
LOGS_AT_ONCE: Final = 4
_SPECS: Final = ("initContainers", "containers", "ephemeralContainers")
_STATUSES: Final = (
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDifference:
    """How an object differs from git."""

    text: str | None = None
    """Values of Secrets masked; empty when it does not differ, None when that is not known."""
    notes: Sequence[str] = field(default=())


Compare = Callable[[LiveObject], Awaitable[GitDifference]]
"""Compares an object that the application has applied with git. Raises StageFailedError."""


def to_git_difference(record: LiveObject, found: ObjectDifference | None) -> GitDifference:
    """Returns a difference as it is shown.

    What the server said of a Secret that it refused is left out: it may quote it.
    """
    if found is None:
        return GitDifference(text="")
    if found.change is DriftChange.DELETE:
        return GitDifference(notes=["git does not have it any more: the next sync removes it"])
    notes = () if is_secret(record) else found.notes
    return GitDifference(text=format_nodes(found.nodes), notes=notes)


def is_secret(record: LiveObject) -> bool:
    """Returns whether an object is a Secret, by what the API calls it."""
    return (record.resource.group, record.resource.kind) == ("", "Secret")


async def open_object(
    cluster: Cluster,
    record: LiveObject,
    compare: Compare,
    *,
    container: str = "",
    log_lines: int,
) -> Details:
    """Returns what is shown of an object. Raises ResourceGoneError, or ClusterError."""
    ref = ObjectRef(resource=record.resource, namespace=record.namespace, name=record.name)
    body = await cluster.get(ref)
    if body is None or read_uid(body) != record.uid:
        raise ResourceGoneError(
            f"{record.resource.kind} {record.name!r} is not there any more",
            hint="the live state shows what runs now",
        )
    reading = _Reading(cluster=cluster, record=record, ref=ref, notes=[])
    is_pod = (record.resource.group, record.resource.kind) == ("", "Pod")
    async with asyncio.TaskGroup() as tasks:
        events = tasks.create_task(reading.read_events())
        difference = tasks.create_task(reading.compare(compare))
        logs = tasks.create_task(
            reading.read_logs(body, container, log_lines) if is_pod else _read_nothing()
        )
    return Details(
        manifest=yaml.dump(mask_object(body, is_secret=is_secret(record))),
        events=events.result(),
        difference=difference.result(),
        logs=logs.result(),
        notes=reading.notes,
    )


async def _read_nothing() -> list[ContainerLog]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One object that is being opened. What cannot be read becomes a note, and hides nothing."""

    cluster: Cluster
    record: LiveObject
    ref: ObjectRef
    notes: list[str]

    async def read_events(self) -> list[ResourceEvent]:
        try:
            found = await self.cluster.list_events(self.ref, uid=self.record.uid)
        except ClusterError as error:
            self.notes.append(f"its events cannot be read: {error.reason()}")
            return []
        return [event for event in map(_to_event, found) if event is not None]

    async def compare(self, compare: Compare) -> str | None:
        if not self.record.is_managed:
            self.notes.append("it is not in git: what owns it has made it")
            return None
        try:
            found = await compare(self.record)
        except StageFailedError as error:
            self.notes.append(f"it cannot be compared with git: {error.reason()}")
            return None
        self.notes.extend(found.notes)
        return found.text

    async def read_logs(self, pod: Object, container: str, lines: int) -> list[ContainerLog]:
        """Returns the last lines of each container, and of the one that ran before it."""
        try:
            restarts = _count_restarts(pod)
        except ShapeError as error:
            self.notes.append(f"its containers are not known: {error}")
            return []
        if container and container not in restarts:
            known = ", ".join(restarts) or "none"
            self.notes.append(f"it has no container {container!r}; it has {known}")
            return []
        wanted = [container] if container else list(restarts)
        if (more := len(wanted) - MOST_CONTAINERS) > 0:
            self.notes.append(f"the lines of {more} more containers are left out: name one")
        runs = [
            (name, previous)
            for name in wanted[:MOST_CONTAINERS]
            for previous in (False, True)
            if not previous or restarts[name]
        ]
        room = asyncio.Semaphore(LOGS_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            reading = [
                tasks.create_task(self._read_log(name, room, lines, previous=previous))
                for name, previous in runs
            ]
        return [log for task in reading if (log := task.result()) is not None]

    async def _read_log(
        self, container: str, room: asyncio.Semaphore, lines: int, *, previous: bool
    ) -> ContainerLog | None:
        async with room:
            try:
                text = await self.cluster.read_log(
                    self.ref.namespace,
                    self.ref.name,
                    container=container,
                    tail_lines=lines,
                    previous=previous,
                )
            except ClusterError as error:
                run = "the previous run of " if previous else ""
                self.notes.append(f"the log of {run}{container} cannot be read: {error.reason()}")
                return None
        return ContainerLog(container=container, text=text, previous=previous)


def _count_restarts(pod: Object) -> dict[str, int]:
    """Returns the containers of a pod in their order, with how often each was restarted."""
    restarts = {
        read_text(each, "name"): 0 for part in _SPECS for each in read_maps(pod, "spec", part)
    }
    for each in _iter_statuses(pod):
        name = read_text(each, "name")
        if name in restarts:
            restarts[name] = read_count(each, "restartCount")
    restarts.pop("", None)
    return restarts


def _iter_statuses(pod: Object) -> Iterator[Mapping[str, Any]]:
    for part in _STATUSES:
        yield from read_maps(pod, "status", part)


def _to_event(event: Object) -> ResourceEvent | None:
    """Returns an event of either of its two forms; None when it has neither."""
    try:
        count = read_count(event, "count") or read_count(read_map(event, "series"), "count")
        return ResourceEvent(
            at=_read_time(find_event_time(event)),
            kind=read_text(event, "type"),
            reason=read_text(event, "reason"),
            message=read_text(event, "message") or read_text(event, "note"),
            count=count,
        )
    except ShapeError:
        return None


def _read_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
