# SPDX-License-Identifier: Apache-2.0
"""The call that is being handled: its id and its caller, for log lines and metrics.

Set when it is authenticated, in the task of the call; read when the call is over.
"""

import re
import uuid
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.auth.caller import Agent, ApiKeyCaller, Person
from pipecd_runtime.logs import logger
from pipecd_wire.rpc import PEER, Metadata, Method

log = logger(__name__)

REQUEST_ID: Final = "x-request-id"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """What is known of a call; the caller only once it is authenticated."""

    id: str
    peer: str
    project_id: str = ""
    caller: str = ""
    is_counted: bool = False
    """Whether it counts among the open calls of its caller."""


_current: ContextVar[CallRecord | None] = ContextVar("call", default=None)


def request_id(given: str) -> str:
    """Returns the id that the caller, or a proxy before us, gave the request; else a new one."""
    return given if _PLAIN.fullmatch(given) else uuid.uuid4().hex


def begin(metadata: Metadata) -> CallRecord:
    call = CallRecord(id=request_id(metadata.get(REQUEST_ID, "")), peer=metadata.get(PEER, ""))
    _current.set(call)
    return call


def current() -> CallRecord | None:
    return _current.get()


def name(caller: Agent | ApiKeyCaller | Person) -> str:
    """Returns the name of a caller for logs, without anything secret."""
    if isinstance(caller, Agent):
        return f"piped:{caller.piped_id}"
    if isinstance(caller, ApiKeyCaller):
        return f"api-key:{caller.key_id}"
    return f"user:{caller.name}"


def log_call(method: Method, status: str, seconds: float) -> None:
    """Logs one line per call; an observer. Calls that went well are logged at level DEBUG."""
    call = _current.get() or CallRecord(id="", peer="")
    fields = {
        "method": method.path,
        "status": status,
        "seconds": round(seconds, 4),
        "request_id": call.id,
        "peer": call.peer,
        "project_id": call.project_id,
        "caller": call.caller,
    }
    if status == "INTERNAL":
        log.error("rpc.handled", **fields)
    elif status in {"OK", "CANCELLED", "NOT_FOUND"}:
        log.debug("rpc.handled", **fields)
    else:
        log.info("rpc.handled", **fields)
