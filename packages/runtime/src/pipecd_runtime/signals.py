# SPDX-License-Identifier: Apache-2.0
"""A broadcast between tasks: wakes all tasks that wait now, and can be sent repeatedly."""

import asyncio


class Signal:
    """Wakes all tasks that wait at the moment of `send`; later ones wait for the next `send`.

    A waiter checks its condition first, and waits only while that does not hold:

        while not ready():
            await signal.wait()
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def send(self) -> None:
        """Wakes all tasks that wait."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Waits until `send` is called the next time."""
        await self._event.wait()
