# SPDX-License-Identifier: Apache-2.0
"""Removes the records of scripts from the data folder when their deployment is completed.

Scripts outlive piped; by their records they are found again, and none is run twice. So a record is
removed only when the end of its deployment is durable, and never while its script runs: its shim
holds a lock. A script that still runs after its deployment, for example because an instance on
another machine has taken over, is ended first. Deployments that an earlier piped has left are
looked up once, at the start. The records of unknown deployments stay; the plugin removes them when
they are old.
"""

import asyncio
import errno
import fcntl
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pipecd_model.deployment import is_completed
from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_piped.scripts.ending import RunningScripts
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_runtime.script_records import (
    HASHED,
    LOCK,
    REMOVED,
    find_deployment_folder,
    list_deployment_folders,
)
from pipecd_wire.model.deployment_pb2 import Deployment

log = logger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.2
"""Seconds until a removal is retried: a shim that is about to end still holds its lock."""
LONGEST_PAUSE_SECONDS: Final = 10.0


class ScriptRecords:
    """Removes the records of completed deployments in the background."""

    def __init__(
        self,
        folder: Path,
        *,
        kept: Callable[[Deployment], Awaitable[None]],
        stored: Callable[[str], Awaitable[Deployment]],
        running: Callable[[], Collection[str]],
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        """`kept` waits until the end of a deployment is durable.

        `stored` reads a deployment from the control plane, `running` lists those that run here.
        """
        self._folder = folder
        self._scripts = RunningScripts(folder)
        self._kept = kept
        self._stored = stored
        self._running = running
        self._longest_pause_seconds = longest_pause_seconds
        self._unknown: set[str] = set()
        self._over: dict[str, Deployment] = {}
        self._faults: set[str] = set()
        self._changed = asyncio.Event()

    def on_completed(self, deployment: Deployment) -> None:
        """Queue the removal of the records of a deployment that is completed."""
        if find_deployment_folder(self._folder, deployment.id).is_dir():
            self._over[deployment.id] = deployment
            self._changed.set()

    async def run(self) -> None:
        """Remove records for ever; to be called once an earlier piped's reports are delivered."""
        self._unknown = _names_in(self._folder)
        await asyncio.to_thread(_finish_removals, self._folder)
        backoff = Backoff(
            first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=self._longest_pause_seconds, jitter=0
        )
        while True:
            if self._changed.is_set():
                backoff.reset()
            self._changed.clear()
            await self._ask()
            await self._remove_all()
            pause = backoff.next_pause_seconds()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if self._unknown or self._over else None):
                    await self._changed.wait()

    async def settle(self, limit: float) -> None:
        """Remove what can be removed within the limit at shutdown; the next piped does the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self._over:
                    await self._remove_all()
                    await asyncio.sleep(FIRST_PAUSE_SECONDS / 2 if self._over else 0)

    async def _ask(self) -> None:
        """Look up which of the deployments that an earlier piped has left are completed."""
        for name in sorted(self._unknown):
            try:
                deployment = await self._stored(name)
            except NotFoundError:
                # This may be another control plane than before: the records are kept.
                log.info("script.deployment_unknown", deployment=name)
            except PipecdError as error:
                log.debug("script.deployment_not_asked", deployment=name, reason=str(error))
                return
            else:
                if is_completed(deployment.status):
                    self._over[deployment.id] = deployment
            self._unknown.discard(name)

    async def _remove_all(self) -> None:
        """Remove all concurrently: a script that takes long to end does not delay the others."""
        async with asyncio.TaskGroup() as tasks:
            for deployment in self._over.values():
                tasks.create_task(self._remove(deployment))

    async def _remove(self, deployment: Deployment) -> None:
        if deployment.id in self._running():
            return
        await self._kept(deployment)
        await self._scripts.end(deployment.id)
        try:
            removed = await asyncio.to_thread(forget, self._folder, deployment.id)
        except OSError as error:
            if deployment.id not in self._faults:
                self._faults.add(deployment.id)
                log.warning(
                    "script.records_not_removed", deployment=deployment.id, reason=str(error)
                )
            return
        if removed and self._over.pop(deployment.id, None) is not None:
            self._faults.discard(deployment.id)
            log.info("script.records_removed", deployment=deployment.id)


def forget(scripts: Path, deployment_id: str) -> bool:
    """Remove the records of a deployment; False when one of its scripts still runs.

    Raises OSError when they cannot be removed.
    """
    folder = find_deployment_folder(scripts, deployment_id)
    away = scripts / f"{REMOVED}{folder.name}"
    try:
        # The locks are held until all is removed, so that no script can start meanwhile.
        with _locked(folder):
            shutil.rmtree(away, ignore_errors=True)
            if folder.is_symlink():
                raise OSError(errno.ELOOP, "it is a link, and none of ours", str(folder))
            # Renamed first, so that a shim that starts late cannot make its record.
            folder.rename(away)
            shutil.rmtree(away)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return not folder.exists()
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the locks of all records. Raises BlockingIOError when a running shim holds one."""
    descriptors: list[int] = []
    try:
        for lock in sorted(folder.glob(f"*/{LOCK}")):
            descriptors.append(os.open(lock, os.O_RDWR | os.O_CLOEXEC))
            fcntl.flock(descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _finish_removals(scripts: Path) -> None:
    """Finish the removals that an earlier piped had begun."""
    for folder in scripts.glob(f"{REMOVED}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _names_in(scripts: Path) -> set[str]:
    return {each.name for each in list_deployment_folders(scripts) if len(each.name) != HASHED}
