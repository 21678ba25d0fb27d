# SPDX-License-Identifier: Apache-2.0
"""Creations: an object that is there after a lost answer is the one that was made.

Which one it is can be told: nothing else has the name, and it has what was sent, by our manager.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pipecd_plugin_kubernetes.client.caller import Caller, count_retries
from pipecd_plugin_kubernetes.client.decoding import decode_object
from pipecd_plugin_kubernetes.client.errors import AlreadyExistsError, UnavailableError
from pipecd_plugin_kubernetes.client.requests import Request
from pipecd_plugin_kubernetes.client.resources import Object


async def send_creation(
    caller: Caller,
    request: Request,
    read: Callable[[], Awaitable[Object | None]],
    *,
    body: Object,
    manager: str,
) -> Object:
    """Returns the object that was made; `read` reads it. Raises AlreadyExistsError."""
    counting, retries = count_retries(caller)
    try:
        return decode_object(request.what, (await counting.call(request)).body)
    except (AlreadyExistsError, UnavailableError):
        live = await read() if retries else None
        if live is None or not is_made_of(live, body, manager=manager):
            raise
        return live


def is_made_of(live: Object, body: Object, *, manager: str) -> bool:
    """Returns whether an object has all that a body says, from this manager. Pure.

    Where the server writes a value its own way the answer is no.
    """
    metadata = live.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    is_ours = any(
        isinstance(each, dict)
        and (each.get("manager"), each.get("operation")) == (manager, "Update")
        for each in (entries if isinstance(entries, list) else ())
    )
    return is_ours and _has(live, body)


def _has(live: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            _has(live.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_has, live, wanted))
    return bool(live == wanted and isinstance(live, bool) == isinstance(wanted, bool))
