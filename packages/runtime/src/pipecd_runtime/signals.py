# SPDX-License-Identifier: Apache-2.0
"""A broadcast between tasks: wake everybody who waits now, again and again."""

import asyncio


class Signal:
    """Something happened: everybody who waits at that moment goes on, later ones wait anew.

    A waiter looks at what it waits for first, and waits only while that does not hold:

        while not ready():
            await signal.wait()
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def send(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait until `send` is called the next time."""
        await self._event.wait()
