# SPDX-License-Identifier: Apache-2.0
"""Calls to AWS for one deploy target: off the event loop, tried again, failures in one sentence.

Throttling, lost answers and what AWS does not know yet although it was just made are handled here
and nowhere else. A call that changes something is waited for also when its stage is cancelled, so
that nothing arrives at AWS behind the back of the rollback that follows.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from pipecd_aws.errors import (
    MISSING_CREDENTIALS,
    REFUSED_SIGN_INS,
    AwsError,
    explain_failure,
    explain_refusal,
    name_action,
)
from pipecd_aws.retries import CallVerdict, is_read, judge_failure, judge_refusal
from pipecd_aws.sign_in import CONNECT_SECONDS, READ_SECONDS, Clients
from pipecd_sdk import Clock
from pipecd_sdk.kit.retries import Backoff

RETRY_TIME: Final = timedelta(minutes=2)
"""How long a call is tried again that AWS throttles, or does not answer."""
SETTLE_TIME: Final = timedelta(seconds=60)
"""How long AWS may not know what was just made."""
MOST_PAGES: Final = 1_000
AT_ONCE: Final = 8
_FIRST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 20.0
_LAST_WORD_SECONDS: Final = CONNECT_SECONDS + READ_SECONDS + 5

Answer = Mapping[str, Any]
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsRetry:
    """A call is tried again: which, why, and after how long."""

    what: str
    reason: str
    pause_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A failed attempt, judged."""

    error: AwsError
    verdict: CallVerdict
    is_sign_in: bool = False
    """The credentials were refused, or there were none: nothing was done."""


def _say_nothing(_: AwsRetry) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAccount:
    """One deploy target's sign-in. Copies made by `report_to` share it.

    Example:
        answer = await account.call("ecs", "DescribeServices", {"services": ["web"]})
    """

    clients: Clients
    threads: ThreadPoolExecutor
    clock: Clock
    on_retry: Callable[[AwsRetry], None] = _say_nothing
    retry_time: timedelta = RETRY_TIME

    def report_to(
        self, *, clock: Clock, on_retry: Callable[[AwsRetry], None] = _say_nothing
    ) -> "AwsAccount":
        """Returns the same account; its calls wait by this clock, and tell when they try again."""
        return replace(self, clock=clock, on_retry=on_retry)

    def limit_retries(self, limit: timedelta) -> "AwsAccount":
        """Returns the same account, whose calls are tried again for no longer than this."""
        return replace(self, retry_time=limit)

    async def call(
        self,
        service: str,
        operation: str,
        parameters: Mapping[str, Any] = _NONE,
        *,
        repeatable: bool = True,
        settling: Collection[str] = (),
    ) -> Answer:
        """Makes one call and returns the answer. Raises AwsError.

        `repeatable`: a second call with the same parameters does no harm (it sets, deletes, or has
        a token); one that is not is never made again when it may have been carried out.
        `settling`: codes of errors that mean that AWS does not know yet what was just made.
        """
        began = self.clock.now()
        pauses = Backoff(first_seconds=_FIRST_SECONDS, longest_seconds=_LONGEST_SECONDS)
        may_repeat = repeatable or is_read(operation)
        while True:
            generation = self.clients.generation
            done = await self._try(service, operation, parameters)
            if not isinstance(done, _Attempt):
                return done
            if done.is_sign_in and await self._run(partial(self.clients.renew, generation)):
                continue
            limit = _find_limit(done, settling, may_repeat=may_repeat)
            pause = pauses.next_pause_seconds()
            if limit is None:
                raise done.error
            limit = min(limit, self.retry_time)
            if self.clock.now() + timedelta(seconds=pause) > began + limit:
                raise done.error
            self.on_retry(
                AwsRetry(
                    what=name_action(service, operation),
                    reason=str(done.error),
                    pause_seconds=pause,
                )
            )
            await self.clock.sleep(timedelta(seconds=pause))

    async def list_all(
        self,
        service: str,
        operation: str,
        parameters: Mapping[str, Any] = _NONE,
        *,
        items: str,
        token_in: str = "nextToken",  # noqa: S107 - a name, no password
        token_out: str = "nextToken",  # noqa: S107 - a name, no password
    ) -> AsyncIterator[Any]:
        """Yields the items of all pages. Raises AwsError."""
        token: Mapping[str, str] = _NONE
        for _ in range(MOST_PAGES):
            answer = await self.call(service, operation, {**parameters, **token})
            for item in answer.get(items) or ():
                yield item
            following = answer.get(token_out)
            if not following:
                return
            token = {token_in: following}
        raise AwsError(f"{name_action(service, operation)}: the list has no end")

    async def read_input_shape(self, service: str, operation: str) -> Any:
        """Returns what botocore knows of the parameters of an operation. Raises AwsError."""
        return (await self._read_model(service, operation)).input_shape

    async def read_output_shape(self, service: str, operation: str) -> Any:
        """Returns what botocore knows of the answer of an operation. Raises AwsError."""
        return (await self._read_model(service, operation)).output_shape

    async def _read_model(self, service: str, operation: str) -> Any:
        try:
            return await self._run(
                lambda: self.clients.get(service).meta.service_model.operation_model(operation)
            )
        except Exception as error:
            raise explain_failure(service, operation, error) from error

    async def _try(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> Answer | _Attempt:
        sending = asyncio.ensure_future(
            self._run(partial(_send, self.clients, service, operation, parameters))
        )
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            if not is_read(operation):
                await asyncio.wait([sending], timeout=_LAST_WORD_SECONDS)
            if sending.done() and not sending.cancelled():
                sending.exception()  # nobody needs it any more
            raise
        except Exception as error:  # noqa: BLE001 - botocore has no common base; all are explained
            return _judge(service, operation, error)

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)


def _send(clients: Clients, service: str, operation: str, parameters: Mapping[str, Any]) -> Answer:
    from botocore import xform_name  # noqa: PLC0415 - imported with the first call

    client = clients.get(service)
    answer: Answer = getattr(client, xform_name(operation))(**parameters)
    return answer


def _judge(service: str, operation: str, error: Exception) -> _Attempt:
    answer = getattr(error, "response", None)
    if isinstance(answer, Mapping) and "Error" in answer:
        given = answer.get("Error") or {}
        code, said = str(given.get("Code", "")), str(given.get("Message", ""))
        status = (answer.get("ResponseMetadata") or {}).get("HTTPStatusCode", 0)
        verdict = judge_refusal(code, status if isinstance(status, int) else 0, said)
        explained = explain_refusal(
            service, operation, answer, is_outcome_unknown=verdict is CallVerdict.UNKNOWN
        )
        return _Attempt(error=explained, verdict=verdict, is_sign_in=code in REFUSED_SIGN_INS)
    verdict = judge_failure(type(error).__name__)
    explained = explain_failure(service, operation, error)
    explained.is_outcome_unknown = verdict is CallVerdict.UNKNOWN
    is_sign_in = type(error).__name__ in MISSING_CREDENTIALS
    return _Attempt(error=explained, verdict=verdict, is_sign_in=is_sign_in)


def _find_limit(
    attempt: _Attempt, settling: Collection[str], *, may_repeat: bool
) -> timedelta | None:
    """Returns how long such a failure is tried again, None for not at all."""
    if attempt.error.code in settling and attempt.error.code:
        return SETTLE_TIME
    match attempt.verdict:
        case CallVerdict.NOT_DONE:
            return RETRY_TIME
        case CallVerdict.UNKNOWN if may_repeat:
            return RETRY_TIME
        case _:
            return None


def make_token(*parts: str) -> str:
    """Returns a client token of 32 characters that is the same for the same parts.

    A continued stage sends it again, and AWS makes nothing twice.
    """
    import hashlib  # noqa: PLC0415 - only for stages that make something

    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


async def wait_until(
    look: Callable[[], Any],
    *,
    clock: Clock,
    deadline: datetime,
    pause: timedelta,
) -> bool:
    """Calls `look` until it returns true, or the deadline has passed; returns which.

    It is looked at least once, and once more after the deadline.
    """
    while True:
        is_last = clock.now() >= deadline
        if await look():
            return True
        if is_last:
            return False
        await clock.sleep_until(min(clock.now() + pause, deadline))
