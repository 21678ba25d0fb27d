# SPDX-License-Identifier: Apache-2.0
"""Files of a repository as the offline commands find and read them. They never call a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipecd_model.errors import ConfigError

LARGEST = 4 << 20
"""Bytes of a file that is still read: far more than anybody writes."""

_YAML = frozenset({".yaml", ".yml", ".json"})
_OURS = b"pipecd.dev/"
_EVENTS = ".pipe"
_PASSED_OVER = frozenset({".git", "node_modules", ".venv"})


def read(path: Path) -> bytes:
    """Read one file; says in a sentence why it cannot be read."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder", hint="name a file in it")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", hint="check the path") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise ConfigError(
            f"{path} is larger than {LARGEST >> 20} MiB", hint="is it the right file?"
        )
    return data


def is_application_file(path: Path) -> bool:
    """Is it an application's file by its name?"""
    return path.name.endswith(".pipecd.yaml") or path.name == ".pipe.yaml"


def find_documents(paths: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Find the documents of files and folders: what is named is taken, what is found is chosen."""
    seen: set[Path] = set()
    for path in paths:
        for each, chosen in ((path, True),) if not path.is_dir() else _walk(path):
            if each in seen:
                continue
            seen.add(each)
            if not chosen and each.stat().st_size > LARGEST:
                continue  # somebody else's: nobody writes such a file by hand
            data = read(each)
            if chosen or _OURS in data:
                yield each, data


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _PASSED_OVER)
        for name in sorted(files):
            path = Path(parent, name)
            if path.suffix not in _YAML or not path.is_file():
                continue
            yield path, is_application_file(path)


def repository_of(path: Path) -> Path | None:
    """Find the root of the git repository that a file is in."""
    for parent in path.resolve().parents:
        if (parent / ".git").exists():
            return parent
    return None


def events_folder(root: Path) -> Iterator[Path]:
    """List the files directly in the folder of a repository's shared documents."""
    folder = root / _EVENTS
    if folder.is_dir():
        yield from sorted(each for each in folder.iterdir() if each.suffix in _YAML)


class FilesAround:
    """The files around one file, on disk."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._root = repository_of(path)

    def is_inside(self, path: str, /) -> bool:
        if self._root is None:
            return True
        return (self._folder / path).resolve().is_relative_to(self._root)

    def exists(self, path: str, /) -> bool:
        return (self._folder / path).is_file()

    def read(self, path: str, /) -> str | None:
        try:
            return read(self._folder / path).decode()
        except (ConfigError, UnicodeDecodeError):
            return None
