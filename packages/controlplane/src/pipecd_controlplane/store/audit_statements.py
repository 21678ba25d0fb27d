# SPDX-License-Identifier: Apache-2.0
"""Builds the statements of audit lists, so that an index can serve each in the order of the chain.

As in other lists one wanted value drives: the rarest. A value stands in one of two columns; that is
a walk along the index of each, merged.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, bindparam, func, select, tuple_, union_all

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import NEEDS_NO_SNAPSHOT

T: Final = schema.audit_record

COLUMNS: Final = {
    "subject": (T.c.subject, T.c.subject_name),
    "actor": (T.c.actor, T.c.actor_id),
    "action": (T.c.action,),
}
"""Where each value that is wanted may stand. Of values that look alike the first drives."""

COUNTED: Final = (100, 5_000)
"""Records up to which those of each value are counted; up to the next where all reach the last."""


@cache
def build_audit_page(names: tuple[str, ...], driving: str, *, oldest_first: bool) -> Any:
    """Returns a statement for the records after a place in the chain: `data`, `sequence`.

    Parameters: the values that are wanted by these names, `project_id`, `since`, `before`, `after`
    and `batch`.
    """
    # Written as no index serves it, so that the one of the driving value is walked along.
    others = [bindparam(name).in_(COLUMNS[name]) for name in names if name != driving]
    if not driving:
        sequence: ColumnElement[int] = T.c.sequence
        return _select(others, oldest_first=oldest_first).order_by(
            sequence if oldest_first else sequence.desc()
        )
    value: ColumnElement[str] = bindparam(driving)
    first, *second = COLUMNS[driving]
    walks = [_walk(others, first, value, oldest_first=oldest_first)]
    walks += [
        _walk([*others, first != value], column, value, oldest_first=oldest_first)
        for column in second
    ]
    if len(walks) == 1:
        return walks[0]
    parts = [walk.subquery() for walk in walks]
    merged = union_all(*(select(part.c.data, part.c.sequence) for part in parts)).subquery()
    order = merged.c.sequence if oldest_first else merged.c.sequence.desc()
    return select(merged.c.data, merged.c.sequence).order_by(order).limit(bindparam("batch"))


def _walk(
    conditions: "Sequence[ColumnElement[bool]]",
    column: "ColumnElement[str]",
    value: "ColumnElement[str]",
    *,
    oldest_first: bool,
) -> "Select[Any]":
    """Returns the walk over the records with this value in this column.

    That it is equal is written as two bounds, and the column is part of the order: PostgreSQL walks
    along the whole chain, where it expects the value to be frequent, if only its order is wanted.
    """
    place, after = tuple_(column, T.c.sequence), tuple_(value, bindparam("after"))
    bounds = (place > after, column <= value) if oldest_first else (place < after, column >= value)
    order = (column, T.c.sequence) if oldest_first else (column.desc(), T.c.sequence.desc())
    return _select((*bounds, *conditions), oldest_first=oldest_first).order_by(*order)


def _select(conditions: "Sequence[ColumnElement[bool]]", *, oldest_first: bool) -> "Select[Any]":
    after: ColumnElement[int] = bindparam("after")
    return (
        select(T.c.data, T.c.sequence)
        .where(
            T.c.project_id == bindparam("project_id"),
            # As expressions: an index by time would be read whole, and sorted, for each page.
            T.c.at + 0 >= bindparam("since"),
            T.c.at + 0 < bindparam("before"),
            T.c.sequence > after if oldest_first else T.c.sequence < after,
            *conditions,
        )
        .limit(bindparam("batch"))
    )


@cache
def build_audit_count(names: tuple[str, ...], most: int) -> Any:
    """Returns a statement that counts the records of each value, in each column up to `most`."""
    counts = [
        sum(
            (_count(name, column, most) for column in COLUMNS[name][1:]),
            start=_count(name, COLUMNS[name][0], most),
        )
        for name in names
    ]
    return select(*counts).execution_options(**NEEDS_NO_SNAPSHOT)


def _count(name: str, column: "ColumnElement[str]", most: int) -> Any:
    found = (
        select(T.c.sequence)
        .where(T.c.project_id == bindparam("project_id"), column == bindparam(name))
        .limit(most)
        .subquery()
    )
    return select(func.count()).select_from(found).scalar_subquery()
