# SPDX-License-Identifier: Apache-2.0
"""A group of tasks that are cancelled together when the process or stage they depend on ends.

A call to a program must not outlive its process, and a watch of commands must not outlive its
stage. Both run in a scope of the group of that process or stage.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class GroupEndedError(Exception):
    """The process or stage that the scope depends on has ended."""


class CancelGroup:
    """The scopes that depend on one process, or on one stage."""

    __slots__ = ("_scopes", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._scopes: set[asyncio.Timeout] = set()

    @property
    def is_busy(self) -> bool:
        """Returns whether any scope is open."""
        return bool(self._scopes)

    @asynccontextmanager
    async def scope(self) -> AsyncIterator[None]:
        """Run the block until the group ends: then it is cancelled, and GroupEndedError raised."""
        if self.ended:
            raise GroupEndedError
        # A timeout without a deadline is a cancel scope: it recognizes its own cancellation.
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
                raise GroupEndedError from None
            raise

    def end(self) -> None:
        """Cancel every open scope, and refuse further ones. May be called repeatedly."""
        self.ended = True
        now = asyncio.get_running_loop().time()
        while self._scopes:
            self._scopes.pop().reschedule(now)
