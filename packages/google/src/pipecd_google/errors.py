# SPDX-License-Identifier: Apache-2.0
"""What may come of a call to Google Cloud: each failure as a sentence, with what to do about it.

All are StageFailedError: a stage that lets one through fails with its sentence, and a live state
shows it.
"""

import json
from typing import Any, Final

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.text import make_printable_line

LONGEST_MESSAGE: Final = 600
"""Characters of what a server says that are shown."""


class GoogleError(StageFailedError):
    """A call to an API of Google Cloud failed."""

    def __init__(
        self, text: str, *, http_status: int = 0, code: str = "", message: str = "", hint: str = ""
    ) -> None:
        super().__init__(text, hint=hint)
        self.http_status = http_status
        """0 when there was no answer."""
        self.code = code
        """The name of Google's error code, e.g. `PERMISSION_DENIED`."""
        self.message = message or text
        """What the server said, cleaned."""
        self.retry_after_seconds: float | None = None
        """How long the server asked to wait."""


class SignInError(GoogleError):
    """There are no credentials, or Google does not accept them."""


class MissingResourceError(GoogleError):
    """What was asked for is not there."""


class ChangedResourceError(GoogleError):
    """Somebody else changed the resource meanwhile, or it is there already."""


class OverloadedError(GoogleError):
    """The server did not answer, failed, or had too much to do: it may help to ask again."""

    def __init__(self, text: str, *, was_refused: bool = False, **more: Any) -> None:
        super().__init__(text, **more)
        self.was_refused = was_refused
        """Nothing was done: the connection was not made, or the server took no more calls."""


def clean_message(text: str) -> str:
    """Returns what a server said as one short line that a terminal does not obey."""
    line = make_printable_line(text.strip())
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}…"


def read_refusal(
    what: str, http_status: int, body: bytes, *, retry_after: str = "", rights_hint: str = ""
) -> GoogleError:
    """Returns the error for an answer that is no success.

    Example:
        >>> str(read_refusal("read service 'web'", 404, b'{"error": {"message": "gone"}}'))
        "cannot read service 'web': gone (404)"
    """
    message, code = _read_error(body)
    said = clean_message(message) if message else "the server gave no reason"
    text = f"cannot {what}: {said} ({http_status}{f' {code}' if code else ''})"
    given: dict[str, Any] = {"http_status": http_status, "code": code, "message": said}
    match http_status:
        case 401:
            return SignInError(text, hint="the credentials are not accepted; renew them", **given)
        case 403:
            return GoogleError(text, hint=rights_hint, **given)
        case 404:
            return MissingResourceError(text, **given)
        case 409 | 412:
            return ChangedResourceError(text, **given)
        case 429:
            error = OverloadedError(text, was_refused=True, **given)
        case _ if http_status >= 500:
            error = OverloadedError(text, **given)
        case _:
            return GoogleError(text, **given)
    error.retry_after_seconds = _read_seconds(retry_after)
    return error


def _read_error(body: bytes) -> tuple[str, str]:
    """Returns message and code of Google's JSON form; of anything else the text itself."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body[:LONGEST_MESSAGE].decode(errors="replace"), ""
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        return "", ""
    message, code = error.get("message"), error.get("status")
    return (
        message if isinstance(message, str) else "",
        clean_message(code) if isinstance(code, str) else "",
    )


def _read_seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 5 else None
