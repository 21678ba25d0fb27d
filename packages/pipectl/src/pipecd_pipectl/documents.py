# SPDX-License-Identifier: Apache-2.0
"""Finds and reads files of a repository for the offline commands, which call no server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from pipecd_model.close_matches import find_close_matches
from pipecd_model.errors import ConfigError

LARGEST = 4 << 20
"""The most bytes of a file that is read: far more than people write by hand."""

_YAML = frozenset({".yaml", ".yml", ".json"})
_OURS = "pipecd.dev/"
_MARK = _OURS.encode()  # a file without it is not worth a second look
_TOP_LEVEL = re.compile(
    r"""^(?P<quote>["']?)(?P<key>apiVersion|kind)(?P=quote)\s*:\s*["']?(?P<value>[^\s"'#]+)""",
    re.MULTILINE,
)
_NEXT_DOCUMENT = re.compile(r"^---", re.MULTILINE)
_EVENTS = ".pipe"
_PASSED_OVER = frozenset({".git", "node_modules", ".venv"})


def read(path: Path) -> bytes:
    """Returns the content of a file. Raises ConfigError when it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder", hint="name a file in it") from None
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
    """Returns whether the name is that of an application file."""
    return path.name.endswith(".pipecd.yaml") or path.name == ".pipe.yaml"


def find_documents(paths: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yields the documents in files and folders.

    A file that is named is always yielded; one in a folder if it has the name of an application
    file, or if it says itself that it is ours.
    """
    seen: set[Path] = set()
    for path in paths:
        for each, chosen in ((path, True),) if not path.is_dir() else _walk(path):
            if each in seen:
                continue
            seen.add(each)
            if not chosen and each.stat().st_size > LARGEST:
                continue  # not one of ours: people do not write such a file by hand
            data = read(each)
            if chosen or is_ours(data):
                yield each, data


def is_ours(data: bytes) -> bool:
    """Returns whether a document in the file is of our version and of one of our kinds, or nearly.

    A manifest may have our annotations, and the manifests of some plugins have our version: they
    are their plugins' to judge.
    """
    if _MARK not in data:
        return False
    text = data.decode(errors="replace")
    return any(_is_ours(_read_head(each)) for each in _NEXT_DOCUMENT.split(text))


def _read_head(document: str) -> dict[str, str]:
    """Returns `apiVersion` and `kind`; of a broken document too, so that it can be told."""
    if document.lstrip().startswith("{"):
        try:
            parsed = json.loads(document)
        except (ValueError, RecursionError):
            return {}
        return {key: str(value) for key, value in parsed.items()}
    return {found["key"]: found["value"] for found in _TOP_LEVEL.finditer(document)}


def _is_ours(head: dict[str, str]) -> bool:
    from pipecd_model.config import v0  # noqa: PLC0415 - slow to import
    from pipecd_model.config.document import KINDS  # noqa: PLC0415

    if not head.get("apiVersion", "").startswith(_OURS):
        return False
    kinds = {each.lower() for each in (*KINDS, *v0.KINDS)}
    kind = head.get("kind", "").lower()
    # A slip of the pen is ours to tell; a kind that is only a little like one of ours is another's.
    return not kind or bool(find_close_matches(kind, kinds, cutoff=0.8))


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _PASSED_OVER)
        for name in sorted(files):
            path = Path(parent, name)
            if path.suffix not in _YAML or not path.is_file():
                continue
            yield path, is_application_file(path)


def repository_of(path: Path) -> Path | None:
    """Returns the root of the git repository that a file is in; None when it is in none."""
    for parent in path.resolve().parents:
        if (parent / ".git").exists():
            return parent
    return None


def events_folder(root: Path) -> Iterator[Path]:
    """Yields the files directly in `.pipe`, the folder of a repository's shared documents."""
    folder = root / _EVENTS
    if folder.is_dir():
        yield from sorted(each for each in folder.iterdir() if each.suffix in _YAML)


class FilesAround:
    """The files around one file on disk, by their paths from its folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.parent

    @cached_property
    def repository(self) -> Path | None:
        """The root of the git repository that the file is in; None when it is in none."""
        return repository_of(self._path)

    def is_inside(self, path: str, /) -> bool:
        if self.repository is None:
            return True
        return (self._folder / path).resolve().is_relative_to(self.repository)

    def exists(self, path: str, /) -> bool:
        return (self._folder / path).is_file()

    def read(self, path: str, /) -> str | None:
        try:
            return read(self._folder / path).decode()
        except (ConfigError, UnicodeDecodeError):
            return None
