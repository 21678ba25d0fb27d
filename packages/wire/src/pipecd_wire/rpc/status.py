# SPDX-License-Identifier: Apache-2.0
"""Errors to gRPC statuses and back.

On the way out an error is judged by its attributes alone (`status`, `hint`), so this package needs
no import from above it. On the way in every failed call is a `CallError`.
"""

import logging
import uuid
from collections.abc import Sequence
from typing import Final

import grpc

from pipecd_wire.headers import ANSWER_TRAILER

log = logging.getLogger(__name__)

CODES: Final = {code.name: code for code in grpc.StatusCode}

# The server has understood and would respond the same again: a retry is pointless.
FINAL: Final = frozenset(
    {
        "OK",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "FAILED_PRECONDITION",
        "UNIMPLEMENTED",
        "UNAUTHENTICATED",
    }
)


LONGEST_MESSAGE: Final = 2_000
"""Bytes. It travels in a header where each may become three; a peer takes 8 KiB of headers."""


Trailers = Sequence[tuple[str, bytes]]
"""Trailing metadata with binary values: keys that end in `-bin`."""


class StatusError(Exception):
    """A response with a status other than OK, raised by a server on purpose."""

    def __init__(self, status: str, message: str, *, trailers: Trailers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.trailers = trailers
        """For programs: sent beside the status over gRPC, not over gRPC-Web."""


class CallError(Exception):
    """A call that failed, as its caller sees it."""

    def __init__(
        self, status: str, message: str, *, method: str = "", trailers: Trailers = ()
    ) -> None:
        super().__init__(message or status)
        self.status = status
        self.message = message
        self.method = method
        self.trailers = trailers
        """What the peer sent beside the status, binary values only."""

    @property
    def is_answer(self) -> bool:
        """Returns whether a program of ours said it: UNAVAILABLE is also what gRPC says itself."""
        return ANSWER_TRAILER in dict(self.trailers)

    @property
    def transient(self) -> bool:
        """Returns whether the same call may succeed later."""
        return self.status not in FINAL

    def __str__(self) -> str:
        return f"{self.status}: {self.message}" if self.message else self.status


def to_status(error: Exception, *, method: str) -> StatusError:
    """Returns the status that a peer gets for an error.

    One that carries a `status` was raised on purpose and is shown with its hint. Any other is a
    bug: it is logged here with its traceback, and the peer gets an id instead of internal details.
    """
    status = getattr(error, "status", None)
    if isinstance(status, str) and status in CODES and status != "OK":
        message = str(getattr(error, "message", "") or error)
        hint = getattr(error, "hint", "")
        text = _fit(f"{message} ({hint})" if hint else message)
        trailers = tuple(getattr(error, "trailers", ()))
        if status == "UNAVAILABLE":
            trailers += ((ANSWER_TRAILER, b"1"),)
        return StatusError(status, text, trailers=trailers)
    bug = uuid.uuid4().hex[:8]
    log.error("rpc.bug", exc_info=error, extra={"fields": {"method": method, "bug": bug}})
    return StatusError("INTERNAL", f"internal error {bug}; the server's log has the details")


def _fit(message: str) -> str:
    """Returns a message that fits a header: not too long, no lone surrogates (as in file names)."""
    data = message.encode("utf-8", "replace")
    if len(data) > LONGEST_MESSAGE:
        data = data[: LONGEST_MESSAGE - 3] + b"..."
    return data.decode("utf-8", "ignore")


def from_rpc_error(error: grpc.aio.AioRpcError, *, method: str) -> CallError:
    sent = error.trailing_metadata() or ()
    trailers = tuple((key, value) for key, value in sent if isinstance(value, bytes))
    return CallError(error.code().name, error.details() or "", method=method, trailers=trailers)
