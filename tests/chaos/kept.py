# SPDX-License-Identifier: Apache-2.0
"""A program under test: killed by the kit, and started again as a supervisor does it."""

import asyncio
import os
import signal
import time
from asyncio.subprocess import Process
from pathlib import Path

from chaos.moments import Moment
from pipecd_quickstart.processes import program

STOP_LIMIT = 30.0


class Kept:
    """A program that is started again whenever it dies, until it is told to stop."""

    def __init__(
        self, name: str, arguments: list[str], log: Path, environment: dict[str, str]
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.log = log
        self.restart_after = 0.0
        """Seconds between a death and the next start."""
        self.deaths = 0
        self.started_at = 0.0
        """Unix seconds."""
        self.unexpected: list[str] = []
        """Ends that nobody has caused."""
        self.life: list[Moment] = []
        """Its starts and ends."""
        self._environment = environment
        self._process: Process | None = None
        self._asked = False
        self._ending = False
        self._up = asyncio.Event()

    @property
    def pid(self) -> int:
        """0 while it is not there."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    async def keep(self) -> None:
        """Run it until `stop`; a task of its own."""
        while not self._ending:
            await self._start()
            assert self._process is not None
            try:
                code = await self._process.wait()
            except asyncio.CancelledError:
                self._process.kill()
                await self._process.wait()
                raise
            self._up.clear()
            self.life.append(Moment.now(f"{self.name} {self._process.pid} ended with {code}"))
            if self._asked:
                self._asked = False
            else:
                self.deaths += 1
                if code != -signal.SIGKILL:
                    self.unexpected.append(f"{self.name} ended by itself with code {code}")
            if not self._ending:
                await asyncio.sleep(self.restart_after)

    async def _start(self) -> None:
        with self.log.open("ab") as sink:
            self._process = await asyncio.create_subprocess_exec(
                program(self.arguments[0]),
                *self.arguments[1:],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                env=self._environment,
            )
        self.started_at = time.time()
        self.life.append(Moment.now(f"{self.name} {self._process.pid} started"))
        self._up.set()

    async def running(self) -> int:
        """Wait until it is started; its pid."""
        await self._up.wait()
        return self.pid

    def signal(self, number: signal.Signals) -> bool:
        """Signal it; False when it is not there."""
        if pid := self.pid:
            os.kill(pid, number)
        return bool(pid)

    async def stop(self) -> None:
        """Ask it to end and wait for that; it is not started again."""
        self._ending = True
        await self._ask()

    async def drain(self) -> None:
        """Ask it to end, as for an update, and wait for that; it is started again."""
        self.life.append(Moment.now(f"{self.name} is asked to end"))
        await self._ask()

    async def _ask(self) -> None:
        await self._up.wait()
        process = self._process
        assert process is not None
        self._asked = True
        self._up.clear()
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_LIMIT):
                await process.wait()
        except TimeoutError:
            self.unexpected.append(f"{self.name} did not stop within {STOP_LIMIT:g} s of SIGTERM")
            process.kill()
            await process.wait()
