# SPDX-License-Identifier: Apache-2.0
"""Follows one kind of one cluster: a list, then every change; after a gap a list again."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec

from pipecd_plugin_kubernetes.client import (
    ApiResource,
    ChangeType,
    Cluster,
    ClusterError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    WatchEvent,
)
from pipecd_plugin_kubernetes.client.decoding import decode_slim
from pipecd_plugin_kubernetes.fields import shorten
from pipecd_plugin_kubernetes.livestate.records import make_record, read_uid
from pipecd_plugin_kubernetes.livestate.store import LiveStore
from pipecd_sdk.kit.retries import Backoff

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 30.0
"""Between two lists of a kind that may be listed and not watched."""
FORBIDDEN_PAUSE_SECONDS: Final = 300.0
"""Rights change seldom."""
GATHER_SECONDS: Final = 0.05
"""Changes in quick succession are read together; piped is told of them within a second anyway."""

OnChange = Callable[[set[str]], None]
"""Is told which applications have changed."""


class KindWatch:
    """One kind of one cluster, kept in its store."""

    def __init__(
        self,
        cluster: Cluster,
        resource: ApiResource,
        *,
        namespace: str,
        store: LiveStore,
        on_change: OnChange,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.resource = resource
        self.problem = ""
        """Why what is known of the kind may be old or incomplete; empty when it is not."""
        self.is_listed = False
        """Whether there has been a complete list."""
        self.settled = asyncio.Event()
        """There has been a list, or it is known why there is none."""
        self._is_polled = False
        self._poll_seconds = poll_seconds
        self._cluster = cluster
        self._namespace = namespace
        self._store = store
        self._on_change = on_change
        self._backoff = Backoff(
            first_seconds=first_pause_seconds, longest_seconds=LONGEST_PAUSE_SECONDS
        )

    async def run(self) -> None:
        """Follows the kind until cancelled, or until the cluster does not serve it any more."""
        while True:
            pause_seconds = 0.0
            try:
                await self._follow(await self._list())
                pause_seconds = self._poll_seconds
            except GoneError:
                # The usual end of a watch that slept too long. One that is gone at once is not.
                pause_seconds = self._backoff.next_pause_seconds()
                if self._backoff.failures == 1:
                    pause_seconds = 0.0
            except NotFoundError:
                self._forget()
                return
            except ClusterError as error:
                self._fail(error.reason())
                pause_seconds = self._backoff.next_pause_seconds()
                if isinstance(error, ForbiddenError):
                    pause_seconds = FORBIDDEN_PAUSE_SECONDS
            except Exception:  # one kind that is read wrongly must not harm the others
                log.exception("livestate.bug", extra={"fields": self._fields()})
                self._fail("a bug in reading this kind; the plugin's log has it")
                pause_seconds = self._backoff.next_pause_seconds()
            await asyncio.sleep(pause_seconds)

    async def list_once(self) -> None:
        """Reads the kind now. Never raises a ClusterError: it becomes the problem."""
        try:
            await self._list()
        except NotFoundError:
            self._forget()
        except ClusterError as error:
            self._fail(error.reason())

    async def _list(self) -> str:
        """Keeps all objects of the kind; returns the version from which to watch."""
        listing = await self._cluster.list(
            self.resource,
            namespace=self._namespace,
            decode=msgspec.Raw,
            convert=lambda raw: make_record(decode_slim(raw), self.resource),
        )
        changed = self._store.replace_kind(self.resource, listing.items)
        if self.problem:
            log.info("livestate.kind_readable", extra={"fields": self._fields()})
        self.problem = ""
        self.is_listed = True
        self.settled.set()
        self._on_change(changed)
        return listing.resource_version

    async def _follow(self, resource_version: str) -> None:
        """Takes changes until the watch fails; returns when it is forbidden and a list is not."""
        try:
            await self._watch(resource_version)
        except ForbiddenError as error:
            if not self._is_polled:
                fields = {**self._fields(), "reason": shorten(error.reason())}
                log.warning("livestate.kind_unwatched", extra={"fields": fields})
            self._is_polled = True

    async def _watch(self, resource_version: str) -> None:
        changes = self._cluster.watch(
            self.resource,
            namespace=self._namespace,
            resource_version=resource_version,
            gather_seconds=GATHER_SECONDS,
        )
        async with aclosing(changes):
            async for event in changes:
                self._backoff.reset()
                self._take(event)

    def _take(self, event: WatchEvent[dict[str, Any]]) -> None:
        if event.body is None:
            return
        record = None
        if event.type is not ChangeType.DELETED:
            record = make_record(event.body, self.resource)
        if record is None:
            changed = self._store.remove(read_uid(event.body))
        else:
            changed = self._store.put(record)
        if changed:
            self._on_change(changed)

    def _fail(self, reason: str) -> None:
        reason = shorten(reason)
        if not self.problem:
            fields = {**self._fields(), "reason": reason}
            log.warning("livestate.kind_unreadable", extra={"fields": fields})
        self.problem = reason
        self.settled.set()

    def _forget(self) -> None:
        """The cluster does not serve the kind any more: its definition was removed."""
        self._on_change(self._store.replace_kind(self.resource, ()))
        self.problem = "the cluster does not serve this kind any more"
        self.is_listed = False
        self.settled.set()

    def _fields(self) -> dict[str, str]:
        return {
            "server": self._cluster.server,
            "kind": str(self.resource),
            "namespace": self._namespace,
        }
