# SPDX-License-Identifier: Apache-2.0
"""Reads filtered lists, newest first: which filter drives a list, and in which parts it is read.

The most selective filter drives, so that a page costs the same at any depth.

What was updated since a time is read in two parts. Nearly all of it was also created since then, so
the scan in list order ends there. Of what is older a few rows were updated since: they are found by
the time of their update, because in list order one would walk past everything that there is.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pipecd_controlplane.store.database import Row, Value, View
from pipecd_controlplane.store.list_statements import (
    ALL_ROWS,
    BY_UPDATE,
    ListQuery,
    Part,
    Shape,
    build_listing,
    build_probe,
    name_label,
)
from pipecd_controlplane.store.paging import Position, position_parameters
from pipecd_model.errors import ConfigError

MOST_VALUES: Final = 20
"""Values of one filter: for each number of values a separate statement is cached."""

MOST_LABELS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows: in each column one of the values, all labels, not older than a time."""

    columns: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    updated_since: int = 0

    def __post_init__(self) -> None:
        # Each value is an index scan of its own: a row must not be found by two of them.
        unique = {name: tuple(dict.fromkeys(values)) for name, values in self.columns.items()}
        object.__setattr__(self, "columns", unique)
        for name, values in self.columns.items():
            if len(values) > MOST_VALUES:
                raise ConfigError(
                    f"invalid request: {name}: {len(values)} values in one filter,"
                    f" at most {MOST_VALUES}"
                )
        if len(self.labels) > MOST_LABELS:
            raise ConfigError(
                f"invalid request: labels: {len(self.labels)} in one filter, at most {MOST_LABELS}"
            )

    def shape(self) -> Shape:
        counts = sorted((name, len(values)) for name, values in self.columns.items() if values)
        return tuple(counts), len(self.labels), self.updated_since > 0

    def parameters(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for name, values in self.columns.items():
            found |= {f"{name}_{number}": value for number, value in enumerate(values)}
        for number, (key, value) in enumerate(sorted(self.labels.items())):
            found |= {f"label_key_{number}": key, f"label_value_{number}": value}
        if self.updated_since > 0:
            found["updated_since"] = self.updated_since
        return found


FREQUENT: Final = (1_000, 4_000, 20_000)
"""Rows up to which filters are counted; up to the next number where all of them reach the last."""


DRIVING_SECONDS: Final = 30.0
"""Seconds for which a filter drives a list before the rows of all its filters are counted again."""

MOST_DRIVING: Final = 1_000


class DrivingFilters:
    """Which filter drove each list lately: its next pages, and its updates, count no rows again.

    A choice that is out of date costs time and changes no result. Units use it in their threads.
    Lists are known by `make_list_key`: callers choose their values, which may be megabytes long.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[bytes, tuple[float, str]] = {}

    def find(self, key: bytes) -> str | None:
        """Returns the filter that drove the list lately; None when none did."""
        until, driving = self._known.get(key, (0.0, ""))
        return driving if self._clock() < until else None

    def note(self, key: bytes, driving: str) -> None:
        if len(self._known) >= MOST_DRIVING:
            self._known = {}  # a new one, because threads may be reading this one
        self._known[key] = (self._clock() + DRIVING_SECONDS, driving)


def make_list_key(project_id: str, wanted: Filter, part: Part) -> bytes:
    """Returns what equals that of an equal filter in the same project, and is short."""
    values = (project_id, sorted(wanted.columns.items()), sorted(wanted.labels.items()))
    is_older = part is Part.OLDER
    return hashlib.blake2b(repr((values, is_older)).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class FilteredList:
    """One list that a caller reads, in one view."""

    of: ListQuery
    view: View
    project_id: str
    wanted: Filter
    lately: DrivingFilters

    async def read(self, after: Position, batch: int) -> list[Row]:
        """Returns rows after a position, newest first: `data`, `created_at`, `id`."""
        since = self.wanted.updated_since
        if since <= 0:
            return await self._read_part(Part.ALL, after, batch)
        found: list[Row] = []
        if after.created_at >= since:
            found = await self._read_part(Part.NEWER, after, batch)
        if len(found) < batch:
            older = after if after.created_at < since else Position(created_at=since, id="")
            found += await self._read_part(Part.OLDER, older, batch - len(found))
        return found

    async def _read_part(self, part: Part, after: Position, batch: int) -> list[Row]:
        driving = await self.find_driving(part)
        return await self.view.all(
            build_listing(self.of, self.wanted.shape(), driving, part),
            project_id=self.project_id,
            **self.wanted.parameters(),
            **position_parameters(after),
            batch=batch,
        )

    async def find_driving(self, part: Part = Part.ALL) -> str:
        """Returns the most selective filter: a column's name, a label's, or the time of update."""
        counts = {name: len(values) for name, values in self.wanted.columns.items() if values}
        able = {name: counts[name] for name in self.of.leading if name in counts}
        if self.of.labels is not None:
            able |= {name_label(number): 0 for number in range(len(self.wanted.labels))}
        if part is Part.OLDER:
            # The first: of those that match many rows alike, it is the one that reads fewest.
            able = {BY_UPDATE: 0, **able}
        if len(able) < 2:
            return next(iter(able), ALL_ROWS)
        key = make_list_key(self.project_id, self.wanted, part)
        driving = self.lately.find(key)
        if driving is None:
            found = await self._count(able)
            driving = min(able, key=lambda name: found.get(name, 0))
            self.lately.note(key, driving)
        return driving

    async def _count(self, able: dict[str, int]) -> dict[str, int]:
        """Returns how many rows each filter matches."""
        found: dict[str, int] = {}
        for most in FREQUENT:
            statement = build_probe(self.of, tuple(able.items()), most)
            row = await self.view.one(
                statement, project_id=self.project_id, **self.wanted.parameters()
            )
            found = dict(zip(able, row or (), strict=False))
            if min(found.values(), default=0) < most:
                break  # they do not all match so many rows that they look alike
        return found
