# SPDX-License-Identifier: Apache-2.0
"""Health and readiness of the server, for supervisors that restart it and for load balancers.

A probe checks what a call needs: the database is read, its writer takes a turn, the disk has room.
The result of the database is cached for a second, so that frequent probes cost nothing.
"""

import asyncio
import shutil
import time
from pathlib import Path
from typing import Final

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_runtime.logs import logger

log = logger(__name__)

PROBE_TIMEOUT_SECONDS: Final = 10.0
CACHE_SECONDS: Final = 1.0
LEAST_FREE: Final = 32 * 1024 * 1024
"""Bytes on the disk; with less, the next large report may not fit."""


class Probes:
    """Health and readiness: each is the reason of a failure, empty when all is well."""

    def __init__(self, stores: Stores, folder: Path) -> None:
        self._stores = stores
        self._folder = folder
        self._stopping = False
        self._asking = asyncio.Lock()
        self._answer: tuple[float, str] = (float("-inf"), "")

    def stop(self) -> None:
        """Makes `readiness` fail from now on: the server stops."""
        self._stopping = True

    async def health(self) -> str:
        """Returns what is wrong with this process or its database; empty when all is well."""
        async with self._asking:
            asked_at, answer = self._answer
            if time.monotonic() - asked_at >= CACHE_SECONDS:
                answer = await self._look()
                self._answer = (time.monotonic(), answer)
                if answer:
                    log.error("health.bad", why=answer)
            return answer

    async def readiness(self) -> str:
        """Returns what keeps it from taking work; empty when it is ready."""
        if self._stopping:
            return "it is stopping"
        if trouble := await self.health():
            return trouble
        free = shutil.disk_usage(self._folder).free
        if free < LEAST_FREE:
            return f"the disk of {str(self._folder)!r} has only {free // 1024} KiB left"
        return ""

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                await self._stores.projects.ids()
                await self._stores.database.write(_turn)
        except TimeoutError:
            return f"the database does not answer within {PROBE_TIMEOUT_SECONDS:g} seconds"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not well
            return f"the database cannot be used: {error}"
        return ""


async def _turn(_transaction: Transaction) -> None:
    """Writes nothing: the probe succeeds when the database's writer gets to it."""
