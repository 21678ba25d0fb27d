# SPDX-License-Identifier: Apache-2.0
"""Credentials that stand in a kubeconfig itself: read again when the file is replaced.

A kubeconfig that is mounted from a secret, or written by a provider's program, gets new tokens and
certificates while we run; kubectl, which reads it for each call, follows.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.client.credentials import ClusterCredentials, Credential
from pipecd_plugin_kubernetes.client.errors import ClusterError

log = logging.getLogger(__name__)

_MISSING: Final = (0, 0, 0)


class RenewedCredentials:
    """Those of a connection, and later those of the files that took the place of its files."""

    def __init__(
        self,
        first: ClusterCredentials,
        *,
        files: Sequence[Path],
        load: Callable[[], ClusterCredentials],
    ) -> None:
        """`load` reads the files again; it may block and raise ClusterError."""
        self._current = first
        self._files = tuple(files)
        self._load = load
        self._seen = self._look()
        self._lock = asyncio.Lock()

    async def fetch(self) -> Credential:
        """Returns what the files say now; what they said before while they cannot be read."""
        if self._look() != self._seen:
            async with self._lock:
                await self._renew()
        return await self._current.fetch()

    def forget(self, refused: Credential) -> None:
        self._current.forget(refused)

    async def _renew(self) -> None:
        seen = self._look()
        if seen == self._seen:
            return  # somebody else did it meanwhile
        try:
            self._current = await asyncio.to_thread(self._load)
        except ClusterError as error:
            # Half written, for example: the next write is another change.
            log.warning("kubeconfig.unreadable", extra={"fields": {"reason": error.reason()}})
        else:
            log.info("kubeconfig.renewed", extra={"fields": {"files": list(map(str, self._files))}})
        self._seen = seen

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(_read_identity(path) for path in self._files)


def _read_identity(path: Path) -> tuple[int, int, int]:
    """Returns what changes when a file is written or replaced."""
    try:
        found = path.stat()
    except OSError:
        return _MISSING
    return found.st_mtime_ns, found.st_ino, found.st_size
