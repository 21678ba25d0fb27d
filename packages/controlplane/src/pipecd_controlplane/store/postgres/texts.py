# SPDX-License-Identifier: Apache-2.0
"""Texts as PostgreSQL keeps them: it has no NUL, which texts of protobuf may hold.

A repository whose author writes one into a label must not stop the reports about all others, so a
NUL is kept as two characters. Whatever was written is read as it was.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pipecd_controlplane.store.database import Row

MARK: Final = "\ufdd0"
"""Unicode keeps it free for uses within a program, so that it is in hardly any text."""

NUL: Final = f"{MARK}0"
MARKED: Final = f"{MARK}1"


def escape_texts(values: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments of a statement as PostgreSQL takes them."""
    for value in values:
        if type(value) is str and ("\0" in value or MARK in value):
            return [_escape(each) for each in values]
    return values


def restore_row(row: Iterable[Any]) -> Row:
    """Returns a row as it was written."""
    values = tuple(row)
    for value in values:
        if type(value) is str and MARK in value:
            return tuple(_restore(each) for each in values)
    return values


def _escape(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace(MARK, MARKED).replace("\0", NUL)


def _restore(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace(NUL, "\0").replace(MARKED, MARK)
