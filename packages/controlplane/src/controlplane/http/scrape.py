# SPDX-License-Identifier: Apache-2.0
"""One page of metrics: the server's own, then what each piped reported last.

A metric that several pipeds report has one head: scrapers refuse a page that repeats it.
"""

import time
from collections.abc import Iterable
from typing import Final

from controlplane.http.metrics import Metrics
from controlplane.store.entities import Now
from controlplane.store.stores import Stores
from controlplane.usecases import insights
from controlplane.usecases.pipeds import ONLINE_SECONDS

REMEMBERED: Final = 5.0
"""Seconds: a page that is asked for more often is the same one."""


class Scrape:
    """Makes the page."""

    def __init__(self, metrics: Metrics, stores: Stores, now: Now) -> None:
        self._metrics = metrics
        self._stores = stores
        self._now = now
        self._made: tuple[float, bytes] = (float("-inf"), b"")

    async def text(self) -> bytes:
        made_at, stored = self._made
        if time.monotonic() - made_at >= REMEMBERED:
            stored = await self._from_stores()
            self._made = (time.monotonic(), stored)
        return self._metrics.text() + stored

    async def _from_stores(self) -> bytes:
        applications: list[tuple[str, str, int]] = []
        online: list[tuple[str, int]] = []
        reported: list[str] = []
        for project_id in await self._stores.projects.ids():
            counts = await insights.application_counts(self._stores, project_id, self._now)
            by_kind: dict[str, int] = {}
            for each in counts.counts:
                by_kind[each.labels["KIND"]] = by_kind.get(each.labels["KIND"], 0) + each.count
            applications += [(project_id, kind, count) for kind, count in by_kind.items()]
            stats = await self._stores.piped_stats.of_project(project_id)
            fresh = [
                stat for stat in stats.values() if self._now() - stat.updated_at < ONLINE_SECONDS
            ]
            online.append((project_id, len(fresh)))
            reported += [stat.message.piped_stats.decode(errors="replace") for stat in fresh]
        self._metrics.set_applications(applications)
        self._metrics.set_pipeds(online)
        return joined(reported).encode()


def joined(texts: Iterable[str]) -> str:
    """Several pages as one: each metric once, with the lines of all."""
    heads: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    for text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                family = line.split(" ", 3)[2]
                known = heads.setdefault(family, [])
                if not any(each[:7] == line[:7] for each in known):
                    known.append(line)
            elif line and not line.startswith("#"):
                name = line.split("{", 1)[0].split(" ", 1)[0]
                lines.setdefault(family if name.startswith(family) else name, []).append(line)
    out = [
        line
        for family in dict.fromkeys([*heads, *lines])
        if lines.get(family)
        for line in [*heads.get(family, ()), *lines[family]]
    ]
    return "\n".join(out) + "\n" if out else ""
