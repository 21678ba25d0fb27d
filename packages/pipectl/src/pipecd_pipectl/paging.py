# SPDX-License-Identifier: Apache-2.0
"""Lists that go on to their end, page by page, or to the limit that was asked for."""

from collections.abc import AsyncIterator
from typing import Any, Final

from pipecd_pipectl.output import echo
from pipecd_wire.rpc import call

PAGE: Final = 500


async def list_pages(method: Any, request: Any, limit: int, cursor: str) -> AsyncIterator[Any]:
    """Yields the pages of a list until it ends or has `limit` items; 0 is all of it.

    The cursor of the last page that is yielded is empty when nothing follows.
    """
    left = limit
    request.cursor = cursor
    while True:
        request.limit = min(left, PAGE) if limit > 0 else PAGE
        page = await call(method, request)
        yield page
        left -= sum(len(items) for field, items in page.ListFields() if field.is_repeated)
        # A server that returns the same cursor again would be asked for ever.
        if not page.cursor or page.cursor == request.cursor or (limit > 0 and left <= 0):
            return
        request.cursor = page.cursor


def say_more(count: int, noun: str, cursor: str) -> None:
    """Says on stderr that a list goes on, and how to see the rest."""
    if cursor:
        echo(
            f"\nthe first {count} {noun}; there are more: --limit 0 lists all,"
            f" --cursor {cursor} goes on here",
            err=True,
        )
