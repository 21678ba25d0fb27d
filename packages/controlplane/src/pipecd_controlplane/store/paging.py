# SPDX-License-Identifier: Apache-2.0
"""Lists in pages, newest first by creation time: an order that is stable while a client pages."""

import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pipecd_controlplane.store.database import Row, Value
from pipecd_model.errors import ConfigError

T = TypeVar("T")

ReadRows = Callable[["Position", int], Awaitable[list[Row]]]
"""Returns at most so many rows after a position: the data of an item, then its own position."""

BATCH: Final = 200
"""Rows read at a time while a page is filled."""

MOST_ITEMS: Final = 5000
"""Items of one page at most, whatever limit the caller asks for."""

PAGE_BYTES: Final = 3 * 1024 * 1024
"""A page ends here even when more was asked for: Go's pipectl accepts messages of 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some items of a list, and the cursor of the next page."""

    items: list[T]
    cursor: str
    """Empty on the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What a cursor encodes: the sort key of the last row seen; the next page begins after it."""

    created_at: int
    id: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(f"{self.created_at}/{self.id}".encode()).decode()

    @classmethod
    def decode(cls, cursor: str) -> "Position":
        position: Position | None
        try:
            text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
            created_at, row_id = text.split("/", 1)
            position = cls(created_at=int(created_at), id=row_id)
        except (binascii.Error, ValueError):
            position = None
        # A number that is larger could not even be compared by the database.
        if position is None or abs(position.created_at) > START.created_at:
            raise ConfigError(
                f"invalid request: the cursor {cursor[:40]!r} is not one of ours",
                hint="leave it empty for the first page",
            )
        return position


# Before every row there is: times are Unix seconds, far below this.
START: Final = Position(created_at=2**62, id="")


def position_parameters(position: Position) -> dict[str, Value]:
    """Returns the parameters with which a statement selects the rows after a position."""
    return {"created_at": position.created_at, "after": position.id}


async def fill(
    read: ReadRows,
    *,
    parse: Callable[[bytes], T],
    limit: int,
    cursor: str,
    max_bytes: int = PAGE_BYTES,
) -> Page[T]:
    """Returns one page; `limit` 0 is as many as fit. A page never has more than MOST_ITEMS."""
    if limit < 0:
        raise ConfigError(f"invalid request: the page size {limit} is less than nothing")
    limit = min(limit, MOST_ITEMS) if limit else MOST_ITEMS
    last = Position.decode(cursor) if cursor else START
    items: list[T] = []
    size = 0
    while True:
        # One more than wanted: only a row that is there makes this page not the last.
        batch = min(BATCH, limit + 1 - len(items))
        rows = await read(last, batch)
        for number, row in enumerate(rows):
            data = row[0]
            if len(items) == limit or (items and size + len(data) > max_bytes):
                end = _position_of(rows[number - 1]) if number else last
                return Page(items=items, cursor=end.encode())
            items.append(parse(data))
            size += len(data)
        if len(rows) < batch:
            return Page(items=items, cursor="")
        last = _position_of(rows[-1])


def _position_of(row: Row) -> Position:
    _, created_at, row_id = row
    return Position(created_at=created_at, id=row_id)
