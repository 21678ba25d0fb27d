# SPDX-License-Identifier: Apache-2.0
"""Notices of this control plane to itself.

PostgreSQL delivers notices in the order of their commits: when one to itself is heard, so is all
that others had committed before it was sent.
"""

import asyncio
import itertools

from pipecd_controlplane.store.postgres.notices import Notice
from pipecd_controlplane.usecases.replicated.notifier import Notifier


class Echo:
    """Sends notices to this control plane, and waits until they are heard."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._numbers = itertools.count(1)
        self._awaited: dict[int, asyncio.Event] = {}
        self._callers = 0
        self._served = 0
        """So many of those who have called `catch_up` need no other notice."""
        self._catching_up = asyncio.Lock()

    async def wait_heard(self, *, seconds: float | None = None) -> None:
        """Sends a notice and waits until it is heard here.

        Raises UnavailableError when it is not sent; TimeoutError when it is not heard within
        `seconds` after that.
        """
        number = next(self._numbers)
        heard = self._awaited[number] = asyncio.Event()
        own = self._notifier.replica_id
        try:
            await self._notifier.send_notice(Notice(origin=own, to=own, ping=number))
            async with asyncio.timeout(seconds):
                await heard.wait()
        finally:
            del self._awaited[number]

    async def catch_up(self) -> None:
        """Waits until all is heard that was committed before this call. Raises UnavailableError.

        One notice does for all who have called before it is sent.
        """
        self._callers += 1
        number = self._callers
        async with self._catching_up:
            if number <= self._served:
                return
            waiting = self._callers
            await self.wait_heard()
            self._served = waiting

    def hear(self, notice: Notice) -> None:
        """Takes a notice that this control plane has sent to itself."""
        if (heard := self._awaited.get(notice.ping)) is not None:
            heard.set()
