# SPDX-License-Identifier: Apache-2.0
"""`pipectl migrate`: rewrites older files as they are written today. Needs no server."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipecd_model.errors import ConfigError, add_hint
from pipecd_pipectl.output import echo
from pipecd_runtime.files import write_atomically

if TYPE_CHECKING:
    from pipecd_model.migrate import Rewritten

Migration = Callable[..., "Rewritten"]

_FAULTY = 1
_paths = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
_files = click.option("--config-files", help="Files, separated by commas.")
_diff = click.option("--diff", is_flag=True, help="Show what would change, and write nothing.")


@click.group()
def migrate() -> None:
    """Rewrite older files as they are written today.

    Comments and order stay. Look at the changes with --diff first; the original is kept beside
    the file, with .old behind its name.

    \b
    Examples:
      pipectl migrate application-config --diff .
      pipectl migrate piped-config piped.yaml
    """


@migrate.command("application-config")
@_paths
@_files
@click.option("--dirs", help="Folders, separated by commas.")
@_diff
def application_config(
    paths: tuple[Path, ...], config_files: str | None, dirs: str | None, diff: bool
) -> None:
    """Rewrite application files: files, or folders with all application files below."""
    from pipecd_model.migrate import migrate_application  # noqa: PLC0415 - others need not wait

    given = [*paths, *_split(config_files), *_split(dirs)]
    _run(_application_files(given), migrate_application, diff=diff)


@migrate.command("piped-config")
@_paths
@_files
@_diff
def piped_config(paths: tuple[Path, ...], config_files: str | None, diff: bool) -> None:
    """Rewrite piped files: providers become plugins with deploy targets."""
    from pipecd_model.migrate import migrate_piped  # noqa: PLC0415 - others need not wait

    _run([*paths, *_split(config_files)], migrate_piped, diff=diff)


def _split(names: str | None) -> list[Path]:
    return [Path(name) for name in (names or "").split(",") if name]


def _application_files(paths: Iterable[Path]) -> Iterator[Path]:
    """What is named is taken; in folders only older files are, for there are others."""
    from pipecd_model.config import v0  # noqa: PLC0415
    from pipecd_pipectl import documents  # noqa: PLC0415

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for each, data in documents.find_documents([path]):
            if documents.is_application_file(each) and any(
                kind.encode() in data for kind in v0.KINDS
            ):
                yield each


def _run(paths: Iterable[Path], migration: Migration, *, diff: bool) -> None:
    from pipecd_pipectl import documents  # noqa: PLC0415

    count, failed = 0, False
    for path in paths:
        count += 1
        try:
            text = documents.read(path).decode()
            rewritten = migration(text, file=str(path))
        except (ConfigError, UnicodeDecodeError) as error:
            failed = True
            echo(f"error: {add_hint(error, getattr(error, 'hint', ''))}", err=True)
            continue
        for hazard in rewritten.hazards:
            echo(f"warning: {hazard}", err=True)
        if diff:
            _show(path, text, rewritten.text)
        else:
            _write(path, text, rewritten.text)
            echo(f"migrated {path}")
    if not count:
        raise click.UsageError("name a file or a folder")
    if failed:
        raise click.exceptions.Exit(_FAULTY)


def _show(path: Path, old: str, new: str) -> None:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), str(path), str(path)
    )
    echo("".join(lines), nl=False)


def _write(path: Path, old: str, new: str) -> None:
    """Replaces a file atomically, and keeps the old one with the suffix `.old`."""
    path.with_name(f"{path.name}.old").write_text(old)
    mode = stat.S_IMODE(path.stat().st_mode)
    write_atomically(path, new.encode(), mode=mode)
    path.chmod(mode)  # without what the umask took from it
