# SPDX-License-Identifier: Apache-2.0
"""What `pipecd move` prints: a line that is rewritten on a terminal, else a line for each table."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from pipecd_controlplane.serve.move_places import MovePlaces
from pipecd_controlplane.store.blobs.config import FOLDER_NAME, BlobFolder
from pipecd_controlplane.store.move.tables import TableSize
from pipecd_controlplane.store.sqlite.backup import KEYS
from pipecd_runtime.terminal import make_printable, make_printable_line

REWRITE_SECONDS: Final = 0.1
SILENT_SECONDS: Final = 10.0
"""Where no terminal is, a large table is told again after this long: a log shows life."""

MEBIBYTE: Final = 1024 * 1024


class MoveOutput:
    """Implements `MoveProgress` on stderr."""

    def __init__(self, *, rewrites: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._rewrites = rewrites
        self._clock = clock
        self._step = ""
        self._sizes: Mapping[str, TableSize] = {}
        self._done: dict[str, int] = {}
        self._table = ""
        self._began_at = 0.0
        self._shown_at = 0.0

    def begin(self, step: str, sizes: Mapping[str, TableSize]) -> None:
        self._step, self._sizes, self._done, self._table = step, sizes, {}, ""
        self._began_at = self._shown_at = self._clock()
        self.say(f"{step} {describe_sizes(sizes)}")

    def advance(self, table: str, rows: int) -> None:
        self._done[table] = self._done.get(table, 0) + rows
        is_over = self._done[table] >= self._sizes[table].rows
        passed = self._clock() - self._shown_at
        if self._rewrites:
            if passed >= REWRITE_SECONDS:
                self._rewrite(self._describe(table))
        elif is_over or passed >= SILENT_SECONDS:
            self.say(f"  {self._describe(table)}")

    def end(self) -> None:
        seconds = self._clock() - self._began_at
        rows = sum(self._done.values())
        self.say(f"{self._step} took {seconds:.1f} s, {rows / max(seconds, 0.001):,.0f} rows/s")

    def say(self, line: str) -> None:
        if self._rewrites:
            self._rewrite("")
        click.echo(make_printable(line), err=True)
        self._shown_at = self._clock()

    def _describe(self, table: str) -> str:
        all_rows = sum(each.rows for each in self._sizes.values())
        share = sum(self._done.values()) * 100 // max(all_rows, 1)
        rows = f"{self._done[table]:,} of {self._sizes[table].rows:,} rows"
        return f"{self._step} {table}: {rows}, {min(share, 100)} % of all"

    def _rewrite(self, text: str) -> None:
        self._shown_at = self._clock()
        click.echo(f"\r\x1b[K{text}", nl=False, err=True, color=True)


def describe_sizes(sizes: Mapping[str, TableSize]) -> str:
    """Returns how much there is, in words."""
    rows = sum(each.rows for each in sizes.values())
    size = sum(each.bytes for each in sizes.values())
    return f"{rows:,} rows, " + (
        f"{size / MEBIBYTE:,.1f} MiB" if size >= MEBIBYTE else f"{size:,} bytes"
    )


def print_sizes(sizes: Mapping[str, TableSize]) -> None:
    """Prints what is in each table."""
    width = max(map(len, sizes))
    for name, size in sizes.items():
        if size.rows:
            click.echo(f"{name.ljust(width)}  {size.rows:>12,} rows  {size.bytes:>16,} bytes")


def print_next_steps(places: MovePlaces) -> None:
    """Prints how to start the server, and what it needs beside the database."""
    folder = places.new.data_dir or Path("DIR")
    config = "" if places.to_config is None else f" --config-file {_quote(places.to_config)}"
    if needed := _list_needed(places):
        click.echo(f"\n{needed}")
    click.echo("\nStart the server, with the other flags that it had:\n")
    click.echo(f"  pipecd server --data-dir {_quote(folder)}{config}")


def _list_needed(places: MovePlaces) -> str:
    """Returns which files of the old data folder the server needs in its new one, in words."""
    old, new = places.old.data_dir, places.new.data_dir
    if old is None:
        return (
            "It needs the keys of its old data folder, above all encryption.key: copy them into"
            " the new one before its first start."
        )
    names = [name for name in KEYS if (old / name).exists()]
    if places.new.blobs == BlobFolder(folder=old / FOLDER_NAME):
        names.append(FOLDER_NAME)
    if not names:
        return ""
    why = "Without encryption.key it cannot open the secrets that it keeps."
    if old == new:
        return (
            f"What it needs beside the database is in {old}: {', '.join(names)}. On another"
            f" machine, copy it into its data folder before its first start. {why}"
        )
    paths = " ".join(_quote(old / name) for name in names)
    there = _quote(new or Path("DIR"))
    return f"First copy what it needs beside the database. {why}\n\n  cp -pr {paths} {there}"


def _quote(path: Path) -> str:
    return shlex.quote(make_printable_line(str(path)))


def make_output() -> MoveOutput:
    """Returns the output for where stderr goes."""
    return MoveOutput(rewrites=sys.stderr.isatty() and os.environ.get("TERM") != "dumb")
