# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between a client and an API server."""

import json
import re
import threading
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from pipecd_test_support.web_server import Answer, Question

ALWAYS: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to fail a request. Without any field the connection is reset."""

    answer: Answer | None = None
    """What is answered in place of the server."""
    is_after: bool = False
    """Does the server get the request, and only its answer is lost?"""
    gate: threading.Event | None = None
    """The request waits until this is set; then it goes on, or fails when there is an answer."""


RESET: Final = Fault()
"""The connection is reset before the server sees the request."""
LOST_ANSWER: Final = Fault(is_after=True)
"""The server does what was asked, then the connection is reset."""


def refuse(status: int, reason: str, message: str = "", *, retry_after_seconds: int = 0) -> Fault:
    """Return a fault that is a status of the API; some ask to come back later."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": status,
        "message": message or f"as the test says: {reason}",
    }
    headers = {"Content-Type": "application/json"}
    if retry_after_seconds:
        headers["Retry-After"] = str(retry_after_seconds)
    return Fault(answer=Answer(status=status, body=json.dumps(body).encode(), headers=headers))


CONFLICT: Final = refuse(409, "Conflict", "the object has been modified; please apply your changes")
THROTTLED: Final = refuse(429, "TooManyRequests", retry_after_seconds=1)
INTERNAL_ERROR: Final = refuse(500, "InternalError")
UNAVAILABLE: Final = refuse(503, "ServiceUnavailable", retry_after_seconds=1)
TIMED_OUT: Final = refuse(504, "Timeout")
GONE: Final = refuse(410, "Expired", "The provided continue parameter is too old")
UNAUTHORIZED: Final = refuse(401, "Unauthorized", "Unauthorized")
FORBIDDEN: Final = refuse(403, "Forbidden")
NOT_JSON: Final = Fault(answer=Answer(status=200, body=b"<html>a proxy says hello</html>"))

_EXPIRED: Final = json.dumps(
    {
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "too old resource version: 1 (2)",
            "reason": "Expired",
            "code": 410,
        },
    }
)
GONE_EVENT: Final = Fault(
    answer=Answer(body=f"{_EXPIRED}\n".encode(), headers={"Content-Type": "application/json"})
)
"""A watch that begins and says at once that its version is too old: no status, an event."""


def wait_for(gate: threading.Event) -> Fault:
    """Return a fault that is a slow server: requests wait until the test opens the gate."""
    return Fault(gate=gate)


@dataclass(slots=True, kw_only=True)
class PlannedFault:
    """A fault for some requests, so many times."""

    fault: Fault
    method: str
    pattern: re.Pattern[str]
    rest: int
    done: int = field(default=0)
    """How many requests it has met."""

    def take(self, question: Question) -> bool:
        """Tell whether it is for this request, and count it."""
        if self.rest == 0 or (self.method and self.method != question.method):
            return False
        query = urlencode(question.query, doseq=True)
        if not self.pattern.search(f"{question.path}?{query}" if query else question.path):
            return False
        self.rest -= self.rest > 0
        self.done += 1
        return True
