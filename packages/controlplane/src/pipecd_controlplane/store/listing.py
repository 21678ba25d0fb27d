# SPDX-License-Identifier: Apache-2.0
"""Builds filtered list statements that an index can serve in the order of the list.

The most selective filter drives: its index holds the rows in the order of the pages, so a page
costs the same at any depth. Several values of that filter are several index scans, merged. The
other filters are checked row by row.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    bindparam,
    func,
    or_,
    select,
    tuple_,
    union_all,
)

from pipecd_controlplane.store.database import NEEDS_NO_SNAPSHOT, Value, View
from pipecd_model.errors import ConfigError

MOST_VALUES: Final = 20
"""Values of one filter: for each number of values a separate statement is cached."""

MOST_LABELS: Final = 10

SHAPES: Final = 256
"""How many statements of lists are kept; callers choose the filters, and there are many shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows: in each column one of the values, all labels, not older than a time."""

    columns: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    updated_since: int = 0

    def __post_init__(self) -> None:
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

    def shape(self) -> "Shape":
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


Shape = tuple[tuple[tuple[str, int], ...], int, bool]
"""Everything about a filter but its values: the columns with their counts, labels, a time."""


ALL_ROWS: Final = ""
"""The driving filter when none can drive."""

FREQUENT: Final = (1_000, 4_000, 20_000)
"""Rows up to which filters are counted; up to the next number where all of them reach the last."""


DRIVING_SECONDS: Final = 30.0
"""Seconds for which a filter drives a list before the rows of all its filters are counted again."""

MOST_DRIVING: Final = 1_000


class DrivingFilters:
    """Which filter drove each list lately: its next pages, and its updates, count no rows again.

    A choice that is out of date costs time and changes no result. Units use it in their threads.
    Filters are known by a digest: callers choose their values, which may be megabytes long.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[bytes, tuple[float, str]] = {}

    def find(self, project_id: str, wanted: Filter) -> str | None:
        """Returns the filter that drove the list lately; None when none did."""
        until, driving = self._known.get(_digest(project_id, wanted), (0.0, ""))
        return driving if self._clock() < until else None

    def note(self, project_id: str, wanted: Filter, driving: str) -> None:
        if len(self._known) >= MOST_DRIVING:
            self._known = {}  # a new one, because threads may be reading this one
        self._known[_digest(project_id, wanted)] = (self._clock() + DRIVING_SECONDS, driving)


def _digest(project_id: str, wanted: Filter) -> bytes:
    """Returns a short key that equals that of an equal filter in the same project."""
    values = (project_id, sorted(wanted.columns.items()), sorted(wanted.labels.items()))
    return hashlib.blake2b(repr(values).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class ListQuery:
    """One kind of list: its table, that of its labels, and the columns whose index can drive."""

    table: Table
    labels: Table | None
    leading: tuple[str, ...]

    async def statement(
        self, view: View, project_id: str, wanted: Filter, lately: DrivingFilters
    ) -> Any:
        """Returns a statement for rows after a cursor, newest first: `data`, `created_at`, `id`.

        Parameters: those of the filter, `project_id`, and of the page `created_at`, `after` and
        `batch`.
        """
        driving = await self._find_driving(view, project_id, wanted, lately)
        return build_listing(self, wanted.shape(), driving)

    async def _find_driving(
        self, view: View, project_id: str, wanted: Filter, lately: DrivingFilters
    ) -> str:
        """Returns the most selective filter: the name of a column, or the place of a label."""
        counts = {name: len(values) for name, values in wanted.columns.items() if values}
        able = [name for name in self.leading if name in counts]
        if self.labels is not None:
            able += [_place(number) for number in range(len(wanted.labels))]
        if len(able) < 2:
            return able[0] if able else ALL_ROWS
        if (known := lately.find(project_id, wanted)) is not None:
            return known
        filters = tuple((name, counts.get(name, 0)) for name in able)
        found: dict[str, int] = {}
        for most in FREQUENT:
            statement = _probe(self, filters, most)
            row = await view.one(statement, project_id=project_id, **wanted.parameters())
            found = dict(zip(able, row or (), strict=False))
            if min(found.values(), default=0) < most:
                break  # they do not all match so many rows that they look alike
        driving = min(able, key=lambda name: found.get(name, 0))
        lately.note(project_id, wanted, driving)
        return driving


def _place(number: int) -> str:
    return f"label {number}"


@lru_cache(maxsize=SHAPES)
def _probe(of: ListQuery, filters: tuple[tuple[str, int], ...], most: int) -> Any:
    """Returns a statement that counts the rows each filter matches, up to `most`.

    A filter is the name of what can drive and the number of its values, 0 for a label.
    """
    counted = (_select_matching(of, *each).limit(most).subquery() for each in filters)
    statement = select(
        *(select(func.count()).select_from(each).scalar_subquery() for each in counted)
    )
    return statement.execution_options(**NEEDS_NO_SNAPSHOT)


def _select_matching(of: ListQuery, driving: str, count: int) -> "Select[Any]":
    if of.labels is not None and not count:
        number = int(driving.removeprefix("label "))
        return select(of.labels.c.key).where(
            of.labels.c.project_id == bindparam("project_id"), *_label(of.labels, number)
        )
    return select(of.table.c.id).where(
        of.table.c.project_id == bindparam("project_id"), _any(of.table, driving, count)
    )


@lru_cache(maxsize=SHAPES)
def build_listing(of: ListQuery, shape: Shape, driving: str) -> Any:
    """Returns the statement for filters of this shape; see `ListQuery.statement`."""
    count = dict(shape[0]).get(driving, 1)
    if count == 1:
        return _index_scan(of, shape, driving, 0).limit(bindparam("batch"))
    scans = [
        _index_scan(of, shape, driving, number).limit(bindparam("batch")).subquery()
        for number in range(count)
    ]
    merged = union_all(*(select(scan.c.data, scan.c.created_at, scan.c.id) for scan in scans))
    rows = merged.subquery()
    return (
        select(rows.c.data, rows.c.created_at, rows.c.id)
        .order_by(rows.c.created_at.desc(), rows.c.id.desc())
        .limit(bindparam("batch"))
    )


def _index_scan(of: ListQuery, shape: Shape, driving: str, number: int) -> "Select[Any]":
    """Returns the scan of one index in list order: of a label, of a column's value, or of all."""
    columns, label_count, since = shape
    table, labels = of.table, of.labels
    by_label = driving.startswith("label ")
    first = labels.alias("first") if labels is not None and by_label else None
    created_at = table.c.created_at if first is None else first.c.created_at
    row_id = table.c.id if first is None else first.c.entity_id
    statement = select(table.c.data, created_at, row_id.label("id")).where(
        tuple_(created_at, row_id) < tuple_(bindparam("created_at"), bindparam("after"))
    )
    leading_place = int(driving.removeprefix("label ")) if by_label else None
    if first is None or leading_place is None:
        statement = statement.where(table.c.project_id == bindparam("project_id"))
    else:
        statement = statement.join_from(first, table, table.c.id == first.c.entity_id).where(
            first.c.project_id == bindparam("project_id"), *_label(first, leading_place)
        )
    for name, count in columns:
        if name == driving:
            statement = statement.where(table.c[name] == bindparam(f"{name}_{number}"))
        else:
            statement = statement.where(_any(table, name, count))
    for place in range(label_count):
        if place != leading_place:
            statement = statement.where(_has_label(table, labels, place))
    if since:
        statement = statement.where(table.c.updated_at >= bindparam("updated_since"))
    return statement.order_by(created_at.desc(), row_id.desc())


def _any(table: Table, name: str, count: int) -> "ColumnElement[bool]":
    return or_(*(table.c[name] == bindparam(f"{name}_{number}") for number in range(count)))


def _label(table: Any, place: int) -> "tuple[ColumnElement[bool], ColumnElement[bool]]":
    return (
        table.c.key == bindparam(f"label_key_{place}"),
        table.c.value == bindparam(f"label_value_{place}"),
    )


def _has_label(table: Table, labels: Table | None, place: int) -> "ColumnElement[bool]":
    if labels is None:
        raise ValueError(f"what {table.name} keeps has no labels")
    held = labels.alias(f"label_{place}")
    return select(held.c.key).where(held.c.entity_id == table.c.id, *_label(held, place)).exists()
