# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL of a site, and each control plane's own wire to it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from chaos.moments import Moment
from pipecd_test_support.balancer import BalancedConnection, Balancer
from pipecd_test_support.postgres import PostgresForTests, running_postgres

LISTENS = b"LISTEN "
"""What only the connection says over which a control plane hears of changes."""


class KeptDatabase:
    """A server of PostgreSQL that is lost, and starts again on its files."""

    def __init__(self, server: PostgresForTests, wires: list[Balancer]) -> None:
        self.server = server
        self.wires = wires
        """One for each control plane."""
        self.life: list[Moment] = []
        self._name = server.create_database(is_empty=True)

    @property
    def pid(self) -> int:
        """0 while it is not there."""
        return self.server.pid

    @property
    def log(self) -> Path:
        return self.server.log

    def url(self, number: int) -> str:
        """Where the control plane of a number finds it."""
        return f"postgresql://postgres@{self.wires[number].address}/{self._name}?sslmode=disable"

    def listeners(self, number: int) -> list[BalancedConnection]:
        """The connections over which a control plane hears of changes."""
        return [each for each in self.wires[number].connections if LISTENS in each.said]

    async def kill(self, away_seconds: float) -> None:
        """Kill all its processes, and start it again after a while."""
        self.life.append(Moment.now(f"database {self.pid} is killed"))
        self.server.kill()
        await self._start(away_seconds)

    async def fail_over(self, away_seconds: float) -> None:
        """Stop it at once, with all its connections; the next one begins with a recovery."""
        self.life.append(Moment.now(f"database {self.pid} is stopped at once"))
        await asyncio.to_thread(self.server.stop, signal.SIGQUIT)
        await self._start(away_seconds)

    async def _start(self, away_seconds: float) -> None:
        await asyncio.sleep(away_seconds)
        await asyncio.to_thread(self.server.start)
        self.life.append(Moment.now(f"database {self.pid} answers"))


@asynccontextmanager
async def running_database(replicas: int) -> AsyncIterator[KeptDatabase]:
    """A database, with a wire for each control plane."""
    async with AsyncExitStack() as opened:
        server = opened.enter_context(running_postgres())
        wires = [
            await opened.enter_async_context(
                Balancer([str(server.socket)], words=[LISTENS]).listening()
            )
            for _ in range(replicas)
        ]
        yield KeptDatabase(server, wires)
