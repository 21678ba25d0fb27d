# SPDX-License-Identifier: Apache-2.0
"""Prints the rows of a checkup: lines that fit the terminal for people, JSON for programs."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click

from pipecd_runtime.checkup import CheckRow, Verdict, has_failed
from pipecd_runtime.terminal import escape_for_json, make_printable_line

_COLOURS: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}
_VERDICT_COLUMNS: Final = 6
_WIDEST_SUBJECT: Final = 28
_NARROWEST_TEXT: Final = 30


def print_rows(rows: Sequence[CheckRow], *, as_json: bool) -> None:
    """Prints the rows; texts of others in them are made harmless."""
    if as_json:
        result = {"ok": not has_failed(rows), "checks": [row.to_json() for row in rows]}
        text = json.dumps(result, ensure_ascii=False)
        click.echo(escape_for_json(text) if sys.stdout.isatty() else text)
        return
    color = False if os.environ.get("NO_COLOR") else None
    for line in _format_rows(rows, columns=shutil.get_terminal_size().columns):
        click.echo(line, color=color)
    click.echo(f"\n{format_summary(rows)}")


def _format_rows(rows: Sequence[CheckRow], *, columns: int) -> Iterator[str]:
    subjects = [make_printable_line(row.subject) for row in rows]
    widest = min(max((len(each) for each in subjects), default=0), _WIDEST_SUBJECT)
    indent = _VERDICT_COLUMNS + widest + 2
    width = max(columns - indent, _NARROWEST_TEXT)
    for subject, row in zip(subjects, rows, strict=True):
        first, *more = _wrap(row.text, width) or [""]
        verdict = click.style(row.verdict.value, fg=_COLOURS[row.verdict])
        blank = " " * (_VERDICT_COLUMNS - len(row.verdict.value))
        if len(subject) > widest:  # as a line of its own; the text begins in its column
            yield f"{verdict}{blank}{subject}"
            yield f"{' ' * indent}{first}"
        else:
            yield f"{verdict}{blank}{subject.ljust(widest)}  {first}"
        first_step, *more_steps = _wrap(row.next_step, width - 2) or [""]
        steps = [f"→ {first_step}", *(f"  {line}" for line in more_steps)] if first_step else []
        for line in (*more, *steps):
            yield f"{' ' * indent}{line}"


def _wrap(text: str, width: int) -> list[str]:
    # Commands, paths and addresses are to be copied: they are not broken.
    return textwrap.wrap(
        make_printable_line(text), width, break_on_hyphens=False, break_long_words=False
    )


def format_summary(rows: Iterable[CheckRow]) -> str:
    """Returns `3 ok, 1 warning, 2 failures`."""
    counts = dict.fromkeys(Verdict, 0)
    for row in rows:
        counts[row.verdict] += 1
    failures, warnings = counts[Verdict.FAIL], counts[Verdict.WARN]
    parts = [f"{counts[Verdict.OK]} ok"]
    if warnings:
        parts.append(f"{warnings} warning{'' if warnings == 1 else 's'}")
    if failures:
        parts.append(f"{failures} failure{'' if failures == 1 else 's'}")
    return ", ".join(parts)
