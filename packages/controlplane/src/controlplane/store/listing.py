# SPDX-License-Identifier: Apache-2.0
"""What of a list is wanted, as a statement that an index answers in the list's order.

One of the filters leads: its index holds the rows in the order of the pages, so a page costs the
same however deep it is. Several values of it are several such walks, merged. The other filters are
looked at row by row.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, bindparam, or_, select, tuple_, union_all

from controlplane.store.database import Value
from pipecd_model.errors import ConfigError

MOST_VALUES: Final = 20
"""Of one filter: each number of values is a statement of its own that is kept."""

MOST_LABELS: Final = 10


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


@cache
def listing(table: Table, labels: Table | None, leading: tuple[str, ...], shape: Shape) -> Any:
    """Rows of a project after a position, newest first: `data`, `created_at`, `id`.

    `leading` names the columns that can lead, the one that keeps fewest rows first. Parameters:
    those of the filter, `project_id`, and of the page `created_at`, `after` and `batch`.
    """
    columns, label_count, _ = shape
    counts = dict(columns)
    leader = next((name for name in leading if name in counts), None)
    if label_count and labels is not None and leader not in leading[:1]:
        return _walk(table, labels, shape, leader=None, number=None).limit(bindparam("batch"))
    if leader is None or counts[leader] == 1:
        return _walk(table, labels, shape, leader=leader, number=0).limit(bindparam("batch"))
    walks = [
        _walk(table, labels, shape, leader=leader, number=number)
        .limit(bindparam("batch"))
        .subquery()
        for number in range(counts[leader])
    ]
    merged = union_all(*(select(walk.c.data, walk.c.created_at, walk.c.id) for walk in walks))
    rows = merged.subquery()
    return (
        select(rows.c.data, rows.c.created_at, rows.c.id)
        .order_by(rows.c.created_at.desc(), rows.c.id.desc())
        .limit(bindparam("batch"))
    )


def _walk(
    table: Table, labels: Table | None, shape: Shape, *, leader: str | None, number: int | None
) -> "Select[Any]":
    """The rows in their order along one index: of a value, of a label (no number), of all."""
    columns, label_count, since = shape
    by_label = labels is not None and number is None
    first = labels.alias("first") if labels is not None and by_label else None
    created_at = table.c.created_at if first is None else first.c.created_at
    row_id = table.c.id if first is None else first.c.entity_id
    statement = select(table.c.data, created_at, row_id.label("id")).where(
        tuple_(created_at, row_id) < tuple_(bindparam("created_at"), bindparam("after"))
    )
    if first is None:
        statement = statement.where(table.c.project_id == bindparam("project_id"))
    else:
        statement = statement.join_from(first, table, table.c.id == first.c.entity_id).where(
            first.c.project_id == bindparam("project_id"), *_label(first, 0)
        )
    for name, count in columns:
        if name == leader and number is not None:
            statement = statement.where(table.c[name] == bindparam(f"{name}_{number}"))
        else:
            statement = statement.where(_any(table, name, count))
    for place in range(1 if by_label else 0, label_count):
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
