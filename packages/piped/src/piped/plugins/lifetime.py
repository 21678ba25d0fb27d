# SPDX-License-Identifier: Apache-2.0
"""A life that waits depend on: when it is over, every wait inside it ends at once.

A call to a plugin must not outlive the plugin's process, and a watch of commands must not outlive
its stage. Both enter the life of what they depend on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class OverError(Exception):
    """The life that a wait depended on is over."""


class Lifetime:
    """The life of a process or of a stage."""

    __slots__ = ("_scopes", "over")

    def __init__(self) -> None:
        self.over = False
        self._scopes: set[asyncio.Timeout] = set()

    @property
    def busy(self) -> bool:
        """Does anybody wait inside?"""
        return bool(self._scopes)

    @asynccontextmanager
    async def within(self) -> AsyncIterator[None]:
        """A block that is left with OverError the moment the life is over."""
        if self.over:
            raise OverError
        # A timeout without a time is a cancel scope: it tells its own end from a foreign cancel.
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._scopes.add(scope)
                try:
                    yield
                finally:
                    self._scopes.discard(scope)
        except TimeoutError:
            if scope.expired():
                raise OverError from None
            raise

    def end(self) -> None:
        """Be over. May be repeated."""
        self.over = True
        now = asyncio.get_running_loop().time()
        while self._scopes:
            self._scopes.pop().reschedule(now)
