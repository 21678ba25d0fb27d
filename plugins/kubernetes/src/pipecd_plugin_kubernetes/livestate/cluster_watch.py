# SPDX-License-Identifier: Apache-2.0
"""Follows one cluster: finds out which kinds it has, and watches each of them once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from pipecd_plugin_kubernetes.client import (
    ApiResource,
    Cluster,
    ClusterError,
    Discovery,
    UnknownKindError,
)
from pipecd_plugin_kubernetes.config import AppStateInformer
from pipecd_plugin_kubernetes.fields import shorten
from pipecd_plugin_kubernetes.livestate.kind_watch import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    KindWatch,
    OnChange,
)
from pipecd_plugin_kubernetes.livestate.kinds import choose_kinds
from pipecd_plugin_kubernetes.livestate.store import LiveStore
from pipecd_sdk.kit.retries import Backoff

log = logging.getLogger(__name__)

REDISCOVER_SECONDS: Final = 600.0
"""Seconds between two questions for new kinds; one that a manifest needs is asked for at once."""
FIRST_LIST_SECONDS: Final = 25.0
"""How long a question waits for the first lists; piped waits a minute for all targets."""
UNLISTED: Final = "it has not been listed yet: the cluster is slow to answer"


class ClusterWatch:
    """One cluster, with all that is known of it."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Cluster]],
        *,
        informer: AppStateInformer,
        on_change: OnChange,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self.store = LiveStore()
        self.informer = informer
        self._connect = connect
        self._away = ""
        self._on_change = on_change
        self._kinds: dict[ApiResource, KindWatch] = {}
        self._wanted: set[tuple[str, str]] = set()
        self._asked = asyncio.Event()
        self._tried = asyncio.Event()
        self._is_running = False
        self._first_pause_seconds = first_pause_seconds
        self._listing = asyncio.Lock()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Follows the cluster in a task of its own."""
        self._is_running = True  # from now on, not from the task's first turn
        tasks.create_task(self.run(), name="watch of a cluster")

    async def run(self) -> None:
        """Follows the cluster until cancelled; one that does not answer is asked again."""
        backoff = Backoff(
            first_seconds=self._first_pause_seconds, longest_seconds=LONGEST_PAUSE_SECONDS
        )
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._asked.clear()
                    pause_seconds = REDISCOVER_SECONDS
                    if await self._discover():
                        backoff.reset()
                        for kind in self._add_kinds():
                            tasks.create_task(self._follow(kind), name=f"watch {kind.resource}")
                    else:
                        pause_seconds = backoff.next_pause_seconds()
                    self._tried.set()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause_seconds):
                            await self._asked.wait()
        finally:
            self._is_running = False
            self._tried.clear()
            self._kinds.clear()

    def want(self, kinds: Iterable[tuple[str, str]]) -> bool:
        """Watches kinds, by API version and kind, that manifests name; returns whether any is new.

        One that is excluded, or that the cluster does not have, stays unwatched.
        """
        new = set(kinds) - self._wanted
        if not new:
            return False
        self._wanted |= new
        if self._is_running:
            self._tried.clear()
            self._asked.set()
        return True

    async def wait_ready(self, *, limit_seconds: float = FIRST_LIST_SECONDS) -> None:
        """Waits until every kind is listed, or it is known why not; `limit_seconds` at most.

        Where nobody runs the watch, everything is listed now instead.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                if not self._is_running:
                    await self._list_everything()
                await self._tried.wait()
                for kind in tuple(self._kinds.values()):
                    await kind.settled.wait()

    @property
    def problem(self) -> str:
        """Why nothing is known of the cluster, or only what was; empty when it answers."""
        if self._away or not self._kinds:
            return self._away or UNLISTED
        problems = self.problems
        return "" if len(problems) < len(self._kinds) else next(iter(problems.values()))

    @property
    def problems(self) -> Mapping[ApiResource, str]:
        """The kinds of which what is known may be old or incomplete, and why."""
        return {
            resource: kind.problem or UNLISTED
            for resource, kind in self._kinds.items()
            if kind.problem or not kind.is_listed
        }

    def find_kind(self, group: str, kind: str) -> ApiResource | None:
        """Returns the watched kind of a group, whichever its version; None when it is not."""
        for resource in self._kinds:
            if (resource.group, resource.kind) == (group, kind):
                return resource
        return None

    async def _discover(self) -> bool:
        """Finds out what the cluster has; returns whether it answers."""
        try:
            self._cluster = await self._connect()
            self._discovery: Discovery = await self._cluster.discover()
            for api_version, kind in sorted(self._wanted):
                if self._discovery.find(api_version, kind) is None:
                    with suppress(UnknownKindError):
                        await self._cluster.find_resource(api_version, kind)
            self._discovery = await self._cluster.discover()
        except ClusterError as error:
            if not self._away:
                fields = {"reason": shorten(error.reason())}
                log.warning("livestate.cluster_away", extra={"fields": fields})
            self._away = shorten(error.reason())
            return False
        self._away = ""
        return True

    def _add_kinds(self) -> list[KindWatch]:
        """Returns watches for the kinds that have none yet."""
        new: list[KindWatch] = []
        for resource in choose_kinds(self._discovery, self.informer, wanted=self._wanted):
            if resource in self._kinds or self.find_kind(resource.group, resource.kind):
                continue
            self._kinds[resource] = KindWatch(
                self._cluster,
                resource,
                namespace=self.informer.namespace,
                store=self.store,
                on_change=self._on_change,
                first_pause_seconds=self._first_pause_seconds,
            )
            new.append(self._kinds[resource])
        return new

    async def _follow(self, kind: KindWatch) -> None:
        await kind.run()
        self._kinds.pop(kind.resource, None)  # not served any more; it may come back

    async def _list_everything(self) -> None:
        async with self._listing:
            if not await self._discover():
                self._tried.set()
                return
            self._add_kinds()
            self._tried.set()
            async with asyncio.TaskGroup() as tasks:
                for kind in self._kinds.values():
                    tasks.create_task(kind.list_once())
