# SPDX-License-Identifier: Apache-2.0
"""Builds the statements of filtered lists, so that an index can serve each in the order of pages.

One filter drives: its index holds the rows in the order of the pages. Several values of that filter
are several index scans, merged. The other filters are checked row by row.
"""

from dataclasses import dataclass
from enum import Enum
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

from pipecd_controlplane.store.database import NEEDS_NO_SNAPSHOT

SHAPES: Final = 256
"""How many statements of lists are kept; callers choose the filters, and there are many shapes."""

Shape = tuple[tuple[tuple[str, int], ...], int, bool]
"""Everything about a filter but its values: the columns with their counts, labels, a time."""

ALL_ROWS: Final = ""
"""The driving filter when none can drive."""

BY_UPDATE: Final = "updated_since"
"""The driving filter of rows that are found by the time of their update."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """One kind of list: its table, that of its labels, and the columns whose index can drive."""

    table: Table
    labels: Table | None
    leading: tuple[str, ...]


class Part(Enum):
    """Which rows of a list one statement reads."""

    ALL = "all"
    NEWER = "newer"
    """Of those updated since a time, the ones that were created since then too."""
    OLDER = "older"
    """Of those updated since a time, the ones that were created before it."""


def name_label(number: int) -> str:
    """Returns the name of a label as the driving filter."""
    return f"label {number}"


@lru_cache(maxsize=SHAPES)
def build_probe(of: ListQuery, filters: tuple[tuple[str, int], ...], most: int) -> Any:
    """Returns a statement that counts the rows each filter matches, up to `most`.

    A filter is the name of what can drive and the number of its values, 0 for a label or a time.
    """
    counted = (_select_matching(of, *each).limit(most).subquery() for each in filters)
    statement = select(
        *(select(func.count()).select_from(each).scalar_subquery() for each in counted)
    )
    return statement.execution_options(**NEEDS_NO_SNAPSHOT)


def _select_matching(of: ListQuery, driving: str, count: int) -> "Select[Any]":
    if driving == BY_UPDATE:
        return select(of.table.c.id).where(*_match_updated(of.table))
    if of.labels is not None and not count:
        number = int(driving.removeprefix("label "))
        return select(of.labels.c.key).where(
            of.labels.c.project_id == bindparam("project_id"), *_label(of.labels, number)
        )
    return select(of.table.c.id).where(
        of.table.c.project_id == bindparam("project_id"), _any(of.table, driving, count)
    )


@lru_cache(maxsize=SHAPES)
def build_listing(of: ListQuery, shape: Shape, driving: str, part: Part = Part.ALL) -> Any:
    """Returns a statement for rows after a position, newest first: `data`, `created_at`, `id`.

    Parameters: those of the filter, `project_id`, and of the page `created_at`, `after` and
    `batch`.
    """
    if driving == BY_UPDATE:
        return _scan_updated(of, shape).limit(bindparam("batch"))
    count = dict(shape[0]).get(driving, 1)
    if count == 1:
        return _scan_in_order(of, shape, driving, 0, part).limit(bindparam("batch"))
    scans = [
        _scan_in_order(of, shape, driving, number, part).limit(bindparam("batch")).subquery()
        for number in range(count)
    ]
    merged = union_all(*(select(scan.c.data, scan.c.created_at, scan.c.id) for scan in scans))
    rows = merged.subquery()
    return (
        select(rows.c.data, rows.c.created_at, rows.c.id)
        .order_by(rows.c.created_at.desc(), rows.c.id.desc())
        .limit(bindparam("batch"))
    )


def _scan_in_order(
    of: ListQuery, shape: Shape, driving: str, number: int, part: Part
) -> "Select[Any]":
    """Returns the scan of one index in list order: of a label, of a column's value, or of all."""
    table, labels = of.table, of.labels
    by_label = driving.startswith("label ")
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
            first.c.project_id == bindparam("project_id"),
            *_label(first, int(driving.removeprefix("label "))),
        )
    if part is Part.NEWER:
        statement = statement.where(created_at >= bindparam("updated_since"))
    if driving in table.c:
        statement = statement.where(table.c[driving] == bindparam(f"{driving}_{number}"))
    if shape[2]:
        statement = statement.where(table.c.updated_at >= bindparam("updated_since"))
    statement = statement.where(*_others(of, table, shape, driving))
    return statement.order_by(created_at.desc(), row_id.desc())


def _scan_updated(of: ListQuery, shape: Shape) -> "Select[Any]":
    """Returns the scan of what was updated since a time, sorted.

    Only rows that come after the position are read; for the others their place in the index is
    enough. An expression in place of `created_at` keeps databases from the index in list order, and
    a row that is selected as a value is never joined to all rows.
    """
    table = of.table
    created_at = (table.c.created_at + 0).label("created_at")
    place = tuple_(table.c.created_at + 0, table.c.id)
    updated = (
        select(created_at, table.c.id)
        .where(*_match_updated(table), place < tuple_(bindparam("created_at"), bindparam("after")))
        .subquery("updated")
    )
    row = table.alias("row")
    data = (
        select(row.c.data)
        .where(row.c.id == updated.c.id, *_others(of, row, shape, BY_UPDATE))
        .scalar_subquery()
    )
    statement = select(data.label("data"), updated.c.created_at, updated.c.id)
    if shape[0] or shape[1]:
        statement = statement.where(data.is_not(None))
    return statement.order_by(updated.c.created_at.desc(), updated.c.id.desc())


def _match_updated(table: Table) -> "tuple[ColumnElement[bool], ColumnElement[bool]]":
    return (
        table.c.project_id == bindparam("project_id"),
        table.c.updated_at >= bindparam("updated_since"),
    )


def _others(of: ListQuery, row: Any, shape: Shape, driving: str) -> "list[ColumnElement[bool]]":
    """Returns the conditions of the columns and labels that do not drive."""
    columns, label_count, _ = shape
    conditions = [_any(row, name, count) for name, count in columns if name != driving]
    numbers = (each for each in range(label_count) if name_label(each) != driving)
    return conditions + [_has_label(row, of.labels, number) for number in numbers]


def _any(row: Any, name: str, count: int) -> "ColumnElement[bool]":
    return or_(*(row.c[name] == bindparam(f"{name}_{number}") for number in range(count)))


def _label(table: Any, number: int) -> "tuple[ColumnElement[bool], ColumnElement[bool]]":
    return (
        table.c.key == bindparam(f"label_key_{number}"),
        table.c.value == bindparam(f"label_value_{number}"),
    )


def _has_label(row: Any, labels: Table | None, number: int) -> "ColumnElement[bool]":
    if labels is None:
        raise ValueError(f"what {row.name} keeps has no labels")
    held = labels.alias(f"label_{number}")
    return select(held.c.key).where(held.c.entity_id == row.c.id, *_label(held, number)).exists()
