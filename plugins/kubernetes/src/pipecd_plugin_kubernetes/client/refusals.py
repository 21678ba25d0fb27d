# SPDX-License-Identifier: Apache-2.0
"""Answers that are no success, read as errors with a sentence for people.

The body is a `Status` of the API, or anything that a proxy in between may say.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pipecd_plugin_kubernetes.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    FieldConflict,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    StatusCause,
    UnauthorizedError,
    UnavailableError,
)
from pipecd_plugin_kubernetes.client.withholding import withhold_causes, withhold_message
from pipecd_sdk.kit.text import make_printable_line

LONGEST_MESSAGE: Final = 1000
"""Characters of what a server says that go into a sentence."""
MOST_CAUSES: Final = 10
LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0

_WRONG_MANIFEST: Final = "failed to create typed patch object"
"""Servers answer 500 to a manifest that does not fit its kind: asking again does not help."""
_MANAGER: Final = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
_WEBHOOK: Final = re.compile(r"(?:failed calling|calling) (?:admission )?webhook")
_REASONS: Final = {
    "NotFound": 404,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Forbidden": 403,
    "Unauthorized": 401,
    "Invalid": 422,
    "BadRequest": 400,
    "Expired": 410,
    "Gone": 410,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
    "ServerTimeout": 500,
}


def clean_message(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """Returns what somebody else said as one safe line of bounded length."""
    if not isinstance(text, str):
        return ""
    line = make_printable_line(text[: 4 * longest])
    return line if len(line) <= longest else line[: longest - 1] + "…"


def read_refusal(
    what: str,
    http_status: int,
    body: bytes,
    *,
    retry_after: str = "",
    source: str = "",
    is_secret: bool = False,
) -> ApiError:
    """Returns the error of an answer; `what` was tried: `apply Deployment 'web'`.

    `source` is where the credentials come from, for the hint of a refusal. `is_secret` says that
    values were sent that the server may quote.
    """
    try:
        status = msgspec.json.decode(body) if body else {}
    except (msgspec.DecodeError, RecursionError):
        status = {"message": body[: 2 * LONGEST_MESSAGE].decode("utf-8", "replace")}
    if not isinstance(status, dict):
        status = {}
    error = read_status(what, status, http_status=http_status, source=source, is_secret=is_secret)
    error.retry_after_seconds = _read_seconds(retry_after) or error.retry_after_seconds
    return error


def read_status(
    what: str,
    status: dict[str, Any],
    *,
    http_status: int = 0,
    source: str = "",
    is_secret: bool = False,
) -> ApiError:
    """Returns the error of a `Status`, from an answer or from an event of a watch."""
    reason = clean_message(status.get("reason"), 100)
    code = status.get("code")
    if not http_status:
        http_status = code if isinstance(code, int) and code else _REASONS.get(reason, 500)
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    message = clean_message(status.get("message"))
    causes = _read_causes(details.get("causes"))
    was_webhook = bool(_WEBHOOK.search(message))
    kind = choose_error(http_status, reason)
    if message.startswith(_WRONG_MANIFEST):
        kind = InvalidError
    if is_secret:
        message, causes = withhold_message(message), withhold_causes(causes)
    conflicts = _read_conflicts(causes) if kind is ConflictError else ()
    error = kind(
        f"cannot {what}: {_explain(kind, http_status, message, causes, conflicts)}",
        http_status=http_status,
        status_reason=reason,
        message=message,
        causes=causes,
        retry_after_seconds=_read_seconds(details.get("retryAfterSeconds")),
        hint=_give_hint(kind, source),
    )
    if isinstance(error, ConflictError):
        error.conflicts = conflicts
    if isinstance(error, UnavailableError):
        error.was_refused = http_status == 429 or was_webhook
    return error


def choose_error(http_status: int, reason: str) -> type[ApiError]:
    """Returns the class of error by what the caller can do."""
    if http_status == 409:
        return AlreadyExistsError if reason == "AlreadyExists" else ConflictError
    if http_status == 429 or http_status >= 500:
        return UnavailableError
    return {
        400: InvalidError,
        401: UnauthorizedError,
        403: ForbiddenError,
        404: NotFoundError,
        410: GoneError,
        413: InvalidError,
        415: InvalidError,
        422: InvalidError,
    }.get(http_status, ApiError)


def _read_causes(given: object) -> tuple[StatusCause, ...]:
    if not isinstance(given, list):
        return ()
    return tuple(
        StatusCause(
            reason=clean_message(each.get("reason"), 100),
            field=clean_message(each.get("field"), 300),
            message=clean_message(each.get("message"), 500),
        )
        for each in given[:1000]
        if isinstance(each, dict)
    )


def _read_conflicts(causes: Sequence[StatusCause]) -> tuple[FieldConflict, ...]:
    found = []
    for each in causes:
        if each.reason == "FieldManagerConflict":
            named = _MANAGER.search(each.message)
            manager = named.group(1).replace('\\"', '"') if named else each.message
            found.append(FieldConflict(manager=manager, field=each.field))
    return tuple(found)


def _explain(
    kind: type[ApiError],
    http_status: int,
    message: str,
    causes: Sequence[StatusCause],
    conflicts: Sequence[FieldConflict],
) -> str:
    if conflicts:
        return "other managers own fields of it: " + describe_conflicts(conflicts)
    if kind is InvalidError and any(each.field for each in causes):
        said = [f"{each.field}: {each.message}" for each in causes if each.field]
        return "it is invalid: " + _join_some(said)
    if kind is UnauthorizedError:
        return f"the server does not accept our credentials ({message or 'Unauthorized'})"
    if kind is UnavailableError:
        return f"the server answered {http_status}: {message or 'nothing more'}"
    return message or f"the server answered {http_status}"


def describe_conflicts(conflicts: Sequence[FieldConflict]) -> str:
    """Returns which manager owns which fields, in a sentence."""
    by_manager: dict[str, list[str]] = {}
    for each in conflicts:
        by_manager.setdefault(each.manager, []).append(each.field)
    return "; ".join(
        f"{manager!r} owns {_join_some(fields, ', ')}" for manager, fields in by_manager.items()
    )


def _join_some(said: Sequence[str], between: str = "; ") -> str:
    more = f" and {len(said) - MOST_CAUSES} more" if len(said) > MOST_CAUSES else ""
    return between.join(said[:MOST_CAUSES]) + more


def _give_hint(kind: type[ApiError], source: str) -> str:
    if kind is UnauthorizedError and source:
        return f"they come from {source}"
    if kind is ForbiddenError and source:
        return f"as the user of {source}"
    return ""


def _read_seconds(given: object) -> float | None:
    """Returns a Retry-After in seconds; a date, as proxies may send it, counts as none."""
    try:
        seconds = float(given) if isinstance(given, (str, int, float)) and given else 0.0
    except ValueError:
        return None
    return min(seconds, LONGEST_RETRY_AFTER_SECONDS) if seconds > 0 else None
