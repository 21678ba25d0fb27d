# SPDX-License-Identifier: Apache-2.0
"""One page of metrics: the server's own, and what each piped reported last.

Whose numbers they are is said by the server. Who asks for one project sees nothing that a piped of
another one wrote, not even the head of a metric.
"""

import asyncio
import time
from typing import Final

from pipecd_controlplane.http.metrics import Metrics
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import exposition, insights, piped_metrics
from pipecd_controlplane.usecases.exposition import Family, PageError
from pipecd_controlplane.usecases.pipeds import ONLINE_SECONDS
from pipecd_controlplane.usecases.shared_state import SharedState
from pipecd_runtime.logs import logger

log = logger(__name__)

CACHE_SECONDS: Final = 5.0
"""What is in the database is read no more often."""


class Scrape:
    """Renders the page of all metrics: our own, and those that pipeds report."""

    def __init__(self, metrics: Metrics, stores: Stores, shared: SharedState, now: Now) -> None:
        self._metrics = metrics
        self._stores = stores
        self._shared = shared
        self._now = now
        self._looked_at = float("-inf")
        self._turn = asyncio.Lock()
        self._reported: dict[str, list[list[Family]]] = {}
        self._read: dict[tuple[str, bytes], list[Family]] = {}

    async def text(self, project_id: str | None = None) -> bytes:
        """Returns the page, of one project or of all."""
        async with self._turn:
            if time.monotonic() - self._looked_at >= CACHE_SECONDS:
                await self._look()
                self._looked_at = time.monotonic()
            self._metrics.set_gauges(self._shared.measure())
            own = self._metrics.text().decode()
            return await asyncio.to_thread(self._write, own, project_id)

    async def _look(self) -> None:
        applications: list[tuple[str, str, int]] = []
        online: list[tuple[str, int]] = []
        reports: dict[tuple[str, str], bytes] = {}
        for project_id in await self._stores.projects.ids():
            counts = await insights.count_applications(self._stores, project_id, self._now)
            by_kind: dict[str, int] = {}
            for each in counts.counts:
                by_kind[each.labels["KIND"]] = by_kind.get(each.labels["KIND"], 0) + each.count
            applications += [(project_id, kind, count) for kind, count in by_kind.items()]
            stats = await self._stores.piped_stats.list_by_project(project_id)
            fresh = {
                piped_id: stat
                for piped_id, stat in stats.items()
                if self._now() - stat.updated_at < ONLINE_SECONDS
            }
            online.append((project_id, len(fresh)))
            told = {piped_id: stat.message.piped_stats for piped_id, stat in fresh.items()}
            shown = piped_metrics.select_fitting(told)
            if left_out := len(told) - len(shown):
                log.warning(
                    "piped.metrics_left_out",
                    project=project_id,
                    pipeds=left_out,
                    reason=f"a page has {piped_metrics.LARGEST_PROJECT} bytes of each project",
                )
            reports |= {(project_id, piped_id): data for piped_id, data in shown.items()}
        self._metrics.set_applications(applications)
        self._metrics.set_pipeds(online)
        self._reported = await asyncio.to_thread(self._read_all, reports)

    def _read_all(self, reports: dict[tuple[str, str], bytes]) -> dict[str, list[list[Family]]]:
        """Returns the metrics of reports by project. A report is parsed only when it changed."""
        read: dict[tuple[str, bytes], list[Family]] = {}
        found: dict[str, list[list[Family]]] = {}
        for (project_id, piped_id), data in reports.items():
            key = (piped_id, data)
            families = self._read.get(key)
            if families is None:
                families = _parse_report(project_id, piped_id, data)
            read[key] = families
            found.setdefault(project_id, []).append(families)
        self._read = read
        return found

    def _write(self, own_text: str, project_id: str | None) -> bytes:
        own = exposition.read_page(own_text, trusted=True)
        if project_id is not None:
            own = exposition.select_project(own, project_id)
            pages = self._reported.get(project_id, [])
        else:
            pages = [page for reported in self._reported.values() for page in reported]
        return exposition.write_page(own, pages).encode()


def _parse_report(project_id: str, piped_id: str, data: bytes) -> list[Family]:
    try:
        families = piped_metrics.read_report(data)
    except PageError as error:
        log.warning("piped.metrics_ignored", project=project_id, piped=piped_id, reason=str(error))
        return []
    return piped_metrics.label_as_piped(families, project_id, piped_id)
