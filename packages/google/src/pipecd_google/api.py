# SPDX-License-Identifier: Apache-2.0
"""Calls of one REST API of Google Cloud, and the one place that makes a call again.

| failure | which calls are made again |
|--|--|
| no connection; 429 | all: nothing was done |
| 500, 502, 503, 504, a lost connection, no answer in time | those that may be repeated |
| 401 | all, once, with a new token |
| 404 | those that wait for something to appear: a read may be older than a write |
| anything else | none |

Reads may be repeated, and so may writes that name an etag or the name of what they create: a
second one changes nothing and is refused as a conflict.

httpx2 is imported with the first client: a plugin that only waits for work does not hold it.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pipecd_google.errors import (
    GoogleError,
    MissingResourceError,
    OverloadedError,
    SignInError,
    clean_message,
    read_refusal,
)
from pipecd_google.sign_in import GoogleSignIn
from pipecd_sdk.kit.retries import Backoff

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 60.0
LARGEST_ANSWER_BYTES: Final = 16 * 1024 * 1024
LARGEST_REFUSAL_BYTES: Final = 64 * 1024
AGENT: Final = "pipecd-python"
REPEATABLE: Final = frozenset({500, 502, 503, 504})

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """How often and how long a call is made again."""

    most_attempts: int = 8
    total_seconds: float = 90.0
    """From the first attempt; a pause that would end later is not begun."""
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 15.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedCall:
    """A call that is made again: what, why, and after which pause."""

    what: str
    reason: str
    pause_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleApi:
    """One API at one address, with the account that calls it."""

    address: str
    """`https://run.googleapis.com`, without a slash at its end."""
    sign_in: GoogleSignIn
    client: "httpx2.AsyncClient"
    policy: CallPolicy = field(default_factory=CallPolicy)
    rights_hint: str = ""
    """What to do about a refused right."""
    on_repeat: Callable[[RepeatedCall], None] | None = None

    def report_to(self, on_repeat: Callable[[RepeatedCall], None]) -> "GoogleApi":
        """Returns the same API, which tells of calls that are made again."""
        return replace(self, on_repeat=on_repeat)

    async def get(
        self,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        awaited: bool = False,
    ) -> Json:
        """Returns a resource. `awaited`: it was just made, and a 404 may be too old an answer.

        Raises GoogleError.
        """
        return await self.call("GET", path, what, query=query, awaited=awaited)

    async def call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        awaited: bool = False,
        is_repeatable: bool = True,
    ) -> Json:
        """Returns the JSON object of a success. Raises GoogleError after the last attempt."""
        backoff = Backoff(
            first_seconds=self.policy.first_pause_seconds,
            longest_seconds=self.policy.longest_pause_seconds,
        )
        spent, refused = 0.0, ""
        while True:
            token = await self.sign_in.get_token(refused=refused)
            try:
                return await self._attempt(method, path, what, query, body, token)
            except SignInError:
                if refused:
                    raise
                refused = token
                continue
            except GoogleError as error:
                pause = self._choose_pause(error, backoff, awaited, is_repeatable)
                if pause is None or spent + pause > self.policy.total_seconds:
                    raise
                self._tell(what, error, pause)
            spent += pause
            await self.policy.sleep(pause)

    async def _attempt(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        token: str,
    ) -> Json:
        import httpx2  # noqa: PLC0415 - see above

        headers = {"Authorization": f"Bearer {token}", "User-Agent": AGENT}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with self.client.stream(
                method,
                f"{self.address}{path}",
                params=dict(query or {}),
                headers=headers,
                content=None if body is None else msgspec.json.encode(body),
            ) as answer:
                content = await _read(answer, what)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise explain_failure(what, self.address, error) from error
        if answer.status_code // 100 != 2:
            raise read_refusal(
                what,
                answer.status_code,
                content,
                retry_after=answer.headers.get("retry-after", ""),
                rights_hint=self.rights_hint,
            )
        return _decode(content, what)

    def _choose_pause(
        self, error: GoogleError, backoff: Backoff, awaited: bool, is_repeatable: bool
    ) -> float | None:
        if backoff.failures + 1 >= self.policy.most_attempts:
            return None
        if isinstance(error, MissingResourceError):
            return backoff.next_pause_seconds() if awaited else None
        if not isinstance(error, OverloadedError):
            return None
        if not error.was_refused and not (
            is_repeatable and (error.http_status == 0 or error.http_status in REPEATABLE)
        ):
            return None
        return max(backoff.next_pause_seconds(), error.retry_after_seconds or 0.0)

    def _tell(self, what: str, error: GoogleError, pause_seconds: float) -> None:
        if self.on_repeat is not None:
            self.on_repeat(
                RepeatedCall(what=what, reason=error.message, pause_seconds=pause_seconds)
            )


def make_client() -> "httpx2.AsyncClient":
    """Returns the HTTP client of an API; whoever makes it closes it."""
    import httpx2  # noqa: PLC0415 - see above

    limits = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    return httpx2.AsyncClient(timeout=limits, follow_redirects=False)


async def _read(answer: "httpx2.Response", what: str) -> bytes:
    is_success = answer.status_code // 100 == 2
    largest = LARGEST_ANSWER_BYTES if is_success else LARGEST_REFUSAL_BYTES
    parts, size = [], 0
    async for chunk in answer.aiter_bytes():
        size += len(chunk)
        if size > largest:
            if not is_success:
                break
            raise GoogleError(
                f"cannot {what}: the answer has more than {largest} bytes",
                http_status=answer.status_code,
            )
        parts.append(chunk)
    return b"".join(parts)


def _decode(content: bytes, what: str) -> Json:
    try:
        value = msgspec.json.decode(content) if content.strip() else {}
    except (msgspec.DecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise GoogleError(f"cannot {what}: the answer is no JSON object")
    return value


def explain_failure(what: str, address: str, error: Exception) -> GoogleError:
    """Returns a failure of the network as a sentence, with what is known about the outcome."""
    import httpx2  # noqa: PLC0415 - see above

    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None and inner is not cause:
        cause = inner
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = f"its certificate is not trusted: {clean_message(cause.verify_message)}"
        return GoogleError(f"cannot {what}: {address}: {said}", message=said)
    if isinstance(error, httpx2.TimeoutException):
        kind = "connection" if isinstance(error, httpx2.ConnectTimeout) else "answer"
        said = f"no {kind} in time"
    elif isinstance(error, httpx2.RemoteProtocolError):
        said = "the connection was closed before the answer was complete"
    else:
        said = clean_message(str(cause) or type(cause).__name__)
    return OverloadedError(
        f"cannot {what}: {address}: {said}",
        message=said,
        was_refused=isinstance(
            error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
        ),
    )
