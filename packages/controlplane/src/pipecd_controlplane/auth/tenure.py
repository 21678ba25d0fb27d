# SPDX-License-Identifier: Apache-2.0
"""The right of one stream to stay open: it is checked again and again until a check fails.

While a check is running no response passes; the handler keeps running. A refusal ends the wait of
the handler at once, as a timeout would, so that a stream without new responses ends too.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.entities import Now
from pipecd_model.errors import UnavailableError

LONGEST_TIMER_SECONDS: Final = 60.0
"""The clock is read at least this often: it may be set, and a machine may sleep."""

Ask = Callable[[], Awaitable[int]]
"""Returns when the right ends by itself, in Unix seconds, 0 for never. Raises when it is gone."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Cancellable(Protocol):
    """A timer that has been set."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Cancellable]
"""Calls a function after a number of seconds."""


class Tenure:
    """The right of one stream; a subscriber of the bus."""

    def __init__(self, ask: Ask, spawn: Spawn, now: Now, call_later: CallLater) -> None:
        self._ask = ask
        self._spawn = spawn
        self._now = now
        self._call_later = call_later
        self._refusal: Exception | None = None
        self._stale = False
        self._settled = asyncio.Event()
        self._settled.set()
        self._wait: asyncio.Timeout | None = None
        self._timer: Cancellable | None = None
        self._expires_at = 0

    def notify(self, change: Change | None = None) -> None:
        """Checks the right again, because something that it depends on was written."""
        if self._refusal is not None:
            return
        self._stale = True
        if self._settled.is_set():
            self._settled.clear()
            self._spawn(self._ask_until_fresh())

    def resync(self) -> None:
        """Checks the right again: something that it depends on may have been written unheard."""
        self.notify()

    def stop(self) -> None:
        """Does nothing: when the server stops, the handler ends its stream itself."""

    async def begin(self) -> None:
        """Checks the right for the first time. Raises the error of the check."""
        self._stale = True
        self._settled.clear()
        await self._ask_until_fresh()
        self._check()

    def end(self) -> None:
        """Stops the timer, once the stream is over."""
        if self._timer is not None:
            self._timer.cancel()

    async def pass_on(
        self, answers: AsyncGenerator[Message, None]
    ) -> AsyncGenerator[Message, None]:
        """Yields the responses while the right lasts. Raises the error of a check that fails."""
        async with aclosing(answers):
            while (answer := await self._next(answers)) is not None:
                await self._settle()
                yield answer

    async def _next(self, answers: AsyncGenerator[Message, None]) -> Message | None:
        self._check()
        try:
            async with asyncio.timeout(None) as wait:
                self._wait = wait
                try:
                    return await anext(answers, None)
                finally:
                    self._wait = None
        except Exception:
            self._check()  # whatever the handler made of being stopped
            raise

    async def _settle(self) -> None:
        if self._has_expired():
            self.notify()
        await self._settled.wait()
        self._check()

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    async def _ask_until_fresh(self) -> None:
        """Checks the right, and checks again when something was written meanwhile."""
        try:
            while self._stale:
                self._stale = False
                self._expires_at = await self._ask()
        except Exception as error:  # noqa: BLE001 - raised in the stream; without an answer it ends
            self._refuse(error)
        except asyncio.CancelledError:
            self._refuse(UnavailableError("the control plane is stopping", hint="connect again"))
            raise
        finally:
            self._settled.set()
        self._set_timer()

    def _refuse(self, error: Exception) -> None:
        self._refusal = error
        if self._wait is not None:
            self._wait.reschedule(asyncio.get_running_loop().time())

    def _has_expired(self) -> bool:
        return bool(self._expires_at) and self._expires_at <= self._now()

    def _set_timer(self) -> None:
        self.end()
        if self._expires_at and self._refusal is None:
            left = max(self._expires_at - self._now(), 0)
            self._timer = self._call_later(min(left, LONGEST_TIMER_SECONDS), self._look_at_clock)

    def _look_at_clock(self) -> None:
        if self._has_expired():
            self.notify()
        else:
            self._set_timer()
