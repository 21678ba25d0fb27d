# SPDX-License-Identifier: Apache-2.0
"""Events about objects: how they are chosen and in which order they happened."""

from pipecd_plugin_kubernetes.client.errors import InvalidError
from pipecd_plugin_kubernetes.client.refusals import clean_message
from pipecd_plugin_kubernetes.client.resources import Object, ObjectRef

_TIMES = ("lastTimestamp", "eventTime", "firstTimestamp")


def select_events(ref: ObjectRef, uid: str) -> str:
    """Returns the field selector of an object's events. Raises InvalidError."""
    chosen = {"involvedObject.kind": ref.resource.kind, "involvedObject.name": ref.name}
    if uid:
        chosen["involvedObject.uid"] = uid
    for key, value in chosen.items():
        if not value.isprintable() or any(sign in value for sign in ",=!\\"):
            raise InvalidError(f"not a value of {key}: {clean_message(value, 300)!r}")
    return ",".join(f"{key}={value}" for key, value in chosen.items())


def find_event_time(event: Object) -> str:
    """Returns when an event happened last, in a form that sorts."""
    for key in _TIMES:
        if isinstance(value := event.get(key), str) and value:
            return value
    metadata = event.get("metadata")
    created = metadata.get("creationTimestamp") if isinstance(metadata, dict) else None
    return created if isinstance(created, str) else ""
