# SPDX-License-Identifier: Apache-2.0
"""Makes calls, and makes them again when that is safe and may help.

| failure | which calls are made again |
|--|--|
| no connection | all |
| 429; a webhook that did not answer | all: nothing was done |
| 5xx, reset, no answer in time | idempotent ones; with a Retry-After all |
| 409 without the name of another manager | idempotent ones |
| anything else | none |
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from pipecd_plugin_kubernetes.client.errors import ApiError, ConflictError, UnavailableError
from pipecd_plugin_kubernetes.client.refusals import clean_message, read_refusal
from pipecd_plugin_kubernetes.client.requests import ApiAnswer, OpenAnswer, Request, Transport
from pipecd_sdk.kit.retries import Backoff

MOST_WARNINGS: Final = 100
"""Different ones of a server that are told to one listener."""
CALL_SECONDS: Final = 180.0
"""One attempt of a call, from its first byte to its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long a call is made again."""

    most_attempts: int = 8
    total_seconds: float = 60.0
    """From the first attempt; a pause that would end later is not begun."""
    first_pause_seconds: float = 0.25
    longest_pause_seconds: float = 8.0

    def make_backoff(self) -> Backoff:
        """Returns the pauses of one call."""
        return Backoff(
            first_seconds=self.first_pause_seconds, longest_seconds=self.longest_pause_seconds
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryNotice:
    """A call that is made again: what, why, and after which pause."""

    what: str
    """`apply Deployment 'web' in namespace 'shop'`."""
    reason: str
    """Why it failed, without what."""
    attempt: int
    """How often it has failed so far."""
    pause_seconds: float

    def __str__(self) -> str:
        return f"cannot {self.what}: {self.reason}; trying again in {self.pause_seconds:.1f}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Sends requests through a transport and answers with success or an error."""

    transport: Transport
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    source: str = ""
    """Where the credentials come from, for hints."""
    on_retry: Callable[[RetryNotice], None] | None = None
    on_warning: Callable[[str], None] | None = None

    async def call(self, request: Request) -> ApiAnswer:
        """Returns a success. Raises ApiError after the last attempt."""
        backoff = self.policy.make_backoff()
        ends = _now_seconds() + self.policy.total_seconds
        while True:
            try:
                return await self._attempt(request)
            except ApiError as error:
                pause = self._choose_pause(error, request, backoff)
                if pause is None or _now_seconds() + pause > ends:
                    raise
                self._tell(request, error, backoff.failures, pause)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[OpenAnswer]:
        """Opens a stream, once. Raises ApiError for a refusal."""
        async with self.transport.stream(request) as opened:
            if not opened.head.is_success:
                raise self._read_refusal(request, opened.head)
            yield opened

    async def _attempt(self, request: Request) -> ApiAnswer:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await self.transport.send(request)
        except TimeoutError:
            raise UnavailableError(
                f"cannot {request.what}: no complete answer in {CALL_SECONDS:.0f} seconds"
            ) from None
        if not answer.is_success:
            raise self._read_refusal(request, answer)
        if self.on_warning is not None and not request.sends_secret:
            for each in answer.warnings:
                self.on_warning(read_warning(each))
        return answer

    def _read_refusal(self, request: Request, answer: ApiAnswer) -> ApiError:
        return read_refusal(
            request.what,
            answer.http_status,
            answer.body,
            retry_after=answer.headers.get("retry-after", ""),
            source=self.source,
            is_secret=request.sends_secret,
        )

    def _choose_pause(self, error: ApiError, request: Request, backoff: Backoff) -> float | None:
        if backoff.failures + 1 >= self.policy.most_attempts or not can_retry(error, request):
            return None
        pause = backoff.next_pause_seconds()
        if error.retry_after_seconds is not None:
            pause = max(pause, error.retry_after_seconds)
        return pause

    def _tell(self, request: Request, error: ApiError, failures: int, pause_seconds: float) -> None:
        if self.on_retry is not None:
            self.on_retry(
                RetryNotice(
                    what=request.what,
                    reason=str(error).removeprefix(f"cannot {request.what}: "),
                    attempt=failures,
                    pause_seconds=pause_seconds,
                )
            )


def count_retries(caller: Caller) -> tuple[Caller, list[RetryNotice]]:
    """Returns the same caller, which also writes its retries into a list."""
    retries: list[RetryNotice] = []

    def note(notice: RetryNotice) -> None:
        retries.append(notice)
        if caller.on_retry is not None:
            caller.on_retry(notice)

    return replace(caller, on_retry=note), retries


def can_retry(error: ApiError, request: Request) -> bool:
    """Returns whether a call may be made again after this failure, and whether that may help."""
    if isinstance(error, ConflictError):
        is_certain = error.conflicts or error.is_precondition or request.asks_version
        return request.is_idempotent and not is_certain
    if not isinstance(error, UnavailableError) or error.is_permanent:
        return False
    was_refused = error.was_refused or error.retry_after_seconds is not None
    return was_refused or request.is_idempotent


def tell_once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Returns the same that tells each text once: a sync of many objects repeats its warnings."""
    seen: set[str] = set()

    def tell_new(text: str) -> None:
        if text not in seen and len(seen) < MOST_WARNINGS:
            seen.add(text)
            tell(text)

    return tell_new


def read_warning(header: str) -> str:
    """Returns the text of a `Warning: 299 - "text"` header, cleaned."""
    _, quote, rest = header.partition('"')
    text = rest.rpartition('"')[0] if quote else header
    return clean_message(text.replace('\\"', '"').replace("\\\\", "\\"), 500)


def _now_seconds() -> float:
    return asyncio.get_running_loop().time()
