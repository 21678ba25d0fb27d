# SPDX-License-Identifier: Apache-2.0
"""What a person sees who opens a service, a task set or a task of the live state."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from pipecd_plugin_ecs.livestate import TASK, TASK_SET, Seen
from pipecd_plugin_ecs.masking import hide_values
from pipecd_sdk import Details, Resource, ResourceEvent, ResourceGoneError
from pipecd_sdk.kit.text import make_printable, make_printable_line

MOST_EVENTS: Final = 50
_NOISE: Final = frozenset({"events", "taskSets", "ResponseMetadata"})


def describe(resource: Resource, seen: Seen, *, difference: str | None, hides: bool) -> Details:
    """Returns the details of a resource. Raises ResourceGoneError."""
    if resource.kind == TASK:
        return _describe_task(_find_task(resource, seen), hides=hides)
    if resource.kind == TASK_SET:
        found = next((each for each in seen.task_sets if each.arn == resource.id), None)
        if found is None:
            raise _make_gone(resource)
        is_primary = seen.primary is not None and seen.primary.arn == found.arn
        return Details(manifest=_dump(found.body), difference=difference if is_primary else None)
    if seen.service is None or seen.service.arn != resource.id:
        raise _make_gone(resource)
    return Details(
        manifest=_dump(seen.service.body),
        events=list(_list_events(seen)),
        difference=difference,
    )


def _find_task(resource: Resource, seen: Seen) -> Mapping[str, Any]:
    for each in seen.tasks:
        if each.get("taskArn") == resource.id:
            return each
    raise _make_gone(resource)


def _make_gone(resource: Resource) -> ResourceGoneError:
    return ResourceGoneError(
        f"{make_printable_line(resource.name)} is not there any more",
        hint="the live state shows what runs now",
    )


def _describe_task(task: Mapping[str, Any], *, hides: bool) -> Details:
    notes = ["what its containers wrote is in the logs that the task definition names"]
    return Details(manifest=_dump(hide_values(task) if hides else task), notes=notes)


def _list_events(seen: Seen) -> Iterator[ResourceEvent]:
    events = seen.service.events[:MOST_EVENTS] if seen.service else ()
    for at, message in reversed(events):
        yield ResourceEvent(message=make_printable_line(message)[:1000], at=at)


def _dump(body: Mapping[str, Any]) -> str:
    # Here and not above: a plugin that only waits for work needs no parser in memory.
    from pipecd_sdk.kit import yaml  # noqa: PLC0415

    kept = {key: value for key, value in body.items() if key not in _NOISE}
    return make_printable(yaml.dump(_make_plain(kept)))


def _make_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _make_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(each) for each in value]
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
