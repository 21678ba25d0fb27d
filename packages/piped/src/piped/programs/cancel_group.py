# SPDX-License-Identifier: Apache-2.0
"""A group of waits that are cancelled together, when what they depend on has ended.

A call to a program must not outlive its process, and a watch of commands must not outlive its
stage. Both enter a scope of the group that belongs to what they depend on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class GroupEndedError(Exception):
    """What a wait depended on has ended."""


class CancelGroup:
    """The waits that depend on one process, or on one stage."""

    __slots__ = ("_scopes", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._scopes: set[asyncio.Timeout] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a wait is going on in a scope."""
        return bool(self._scopes)

    @asynccontextmanager
    async def scope(self) -> AsyncIterator[None]:
        """A block that is left with GroupEndedError the moment the group ends."""
        if self.ended:
            raise GroupEndedError
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
                raise GroupEndedError from None
            raise

    def end(self) -> None:
        """Cancel every wait, and refuse further ones. May be repeated."""
        self.ended = True
        now = asyncio.get_running_loop().time()
        while self._scopes:
            self._scopes.pop().reschedule(now)
