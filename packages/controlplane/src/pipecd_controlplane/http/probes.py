# SPDX-License-Identifier: Apache-2.0
"""Health and readiness of the server, for supervisors that restart it and for load balancers.

A probe checks what a call needs: the database is read, its writer takes a turn, the disk has room,
and for readiness the blob store is used. The result of the database is cached for a second, that of
the blob store for longer (requests to a bucket are paid for), so that frequent probes cost nothing.
"""

import asyncio
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from sqlalchemy import delete, false

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger

log = logger(__name__)

PROBE_TIMEOUT_SECONDS: Final = 10.0
CACHE_SECONDS: Final = 1.0
BLOBS_CACHE_SECONDS: Final = 15.0
CHANGE_NOTHING: Final = delete(schema.session).where(false())
BLOBS: Final = "blobs"
CHECKS: Final = frozenset({BLOBS})
"""What can be left out of readiness."""
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
        self._asking_blobs = asyncio.Lock()
        self._blobs_answer: tuple[float, str] = (float("-inf"), "")

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

    async def readiness(self, *, exclude: Collection[str] = ()) -> str:
        """Returns what keeps it from taking work; empty when it is ready.

        `exclude` names those of CHECKS that are left out.
        """
        if self._stopping:
            return "it is stopping"
        if trouble := await self.health():
            return trouble
        free = shutil.disk_usage(self._folder).free
        if free < LEAST_FREE:
            return f"the disk of {str(self._folder)!r} has only {free // 1024} KiB left"
        return "" if BLOBS in exclude else await self._check_blobs()

    async def _check_blobs(self) -> str:
        """Returns what is wrong with the blob store; empty when all is well."""
        async with self._asking_blobs:
            asked_at, answer = self._blobs_answer
            if time.monotonic() - asked_at >= BLOBS_CACHE_SECONDS:
                answer = await self._look_at_blobs()
                self._blobs_answer = (time.monotonic(), answer)
                if answer:
                    log.error("readiness.blobs_bad", why=answer)
            return answer

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

    async def _look_at_blobs(self) -> str:
        blobs = self._stores.blobs
        if blobs is None:
            return ""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                await blobs.check()
        except TimeoutError:
            return f"{blobs.place} does not answer within {PROBE_TIMEOUT_SECONDS:g} seconds"
        except PipecdError as error:
            return error.with_hint()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not well
            return f"{blobs.place} cannot be used: {error}"
        return ""


async def _turn(transaction: Transaction) -> None:
    """Writes nothing, in a statement that a database refuses which may only be read."""
    await transaction.run(CHANGE_NOTHING)
