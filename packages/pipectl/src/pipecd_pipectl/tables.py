# SPDX-License-Identifier: Apache-2.0
"""Tables that fit the terminal: what is too long is cut, a line is never wrapped.

Where no terminal is, and in `-o wide`, nothing is cut.
"""

import itertools
import shutil
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import click

from pipecd_pipectl.output import echo
from pipecd_runtime.terminal import make_printable_line

T = TypeVar("T")

GAP: Final = 2
CUT: Final = "…"
SHORTEST_CELL: Final = 6
"""Characters that are left of a cell that is cut."""
SHORTEST_ID: Final = 8
DEFAULT_WIDTH: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[T]):
    """One column of a table of things."""

    heading: str
    cell: Callable[[T], str]
    colour: Callable[[T], str | None] | None = None
    fixed: bool = False
    """Whether it is never cut: a name to type, a state."""
    wide: bool = False
    """Whether it is shown only in `-o wide`."""


def print_table(columns: Sequence[Column[T]], rows: Iterable[T], *, wide: bool = False) -> None:
    """Prints a table of things, cut to the width of the terminal if there is one."""
    shown = [column for column in columns if wide or not column.wide]
    things = list(rows)
    cells = [[make_printable_line(column.cell(thing)) for column in shown] for thing in things]
    headings = [column.heading for column in shown]
    natural = [
        max(measure_width(row[index]) for row in [headings, *cells]) for index in range(len(shown))
    ]
    limit = None if wide or not sys.stdout.isatty() else get_width()
    widths = fit_widths(natural, [column.fixed for column in shown], limit)
    echo(_join(headings, widths, limit))
    for thing, row in zip(things, cells, strict=True):
        echo(_join(row, widths, limit, [_colour(column, thing) for column in shown]))


def print_rows(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, fixed: Collection[str] = ()
) -> None:
    """Prints a table of texts; the columns with the headings `fixed` are not cut."""

    def take(index: int) -> Callable[[Sequence[str]], str]:
        return lambda row: row[index]

    columns = [
        Column(heading=heading, cell=take(index), fixed=heading in fixed)
        for index, heading in enumerate(headings)
    ]
    print_table(columns, rows)


def get_width() -> int:
    """Returns the number of columns of the terminal."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def fit_widths(natural: Sequence[int], fixed: Sequence[bool], limit: int | None) -> list[int]:
    """Returns the width of each column: the longest ones are made shorter until the line fits.

    Columns that are fixed give way last, when even the shortest others do not help.
    """
    if limit is None:
        return list(natural)
    available = max(1, limit - GAP * (len(natural) - 1))
    widths = [min(each, available) for each in natural]
    for may_cut in ([not each for each in fixed], [True] * len(widths)):
        for _ in range(sum(widths) - available):
            longest = max(
                (each for each, may in enumerate(may_cut) if may and widths[each] > SHORTEST_CELL),
                key=widths.__getitem__,
                default=None,
            )
            if longest is None:
                break
            widths[longest] -= 1
    return widths


def shorten_ids(ids: Iterable[str]) -> dict[str, str]:
    """Returns the beginning of each id that tells it from the others, of at least 8 characters."""
    known = sorted(set(ids))
    length = SHORTEST_ID
    for one, other in itertools.pairwise(known):
        while length < max(len(one), len(other)) and one[:length] == other[:length]:
            length += 1
    return {each: each[:length] for each in known}


def measure_width(text: str) -> int:
    """Returns how many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(_measure_character(each) for each in text)


def cut_text(text: str, width: int) -> str:
    """Returns a text that takes at most `width` columns; one that is cut ends with `…`."""
    if measure_width(text) <= width:
        return text
    left, kept = width - 1, []
    for character in text:
        left -= _measure_character(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + CUT


def _measure_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _join(
    cells: Sequence[str],
    widths: Sequence[int],
    limit: int | None,
    colours: Sequence[str | None] | None = None,
) -> str:
    parts = []
    left = limit
    for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        room = width if left is None else min(width, left)
        if room <= 0:
            break
        shown = cut_text(cell, room)
        last = index == len(cells) - 1
        padding = "" if last else " " * (width - measure_width(shown) + GAP)
        colour = colours[index] if colours else None
        parts.append((click.style(shown, fg=colour) if colour and shown else shown) + padding)
        if left is not None:
            left -= width + GAP
    return "".join(parts).rstrip()


def _colour(column: Column[T], thing: T) -> str | None:
    return column.colour(thing) if column.colour else None
