# SPDX-License-Identifier: Apache-2.0
"""The application's folder in its repository, and paths that cannot lead out of it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_sdk import Source, StageFailedError

LARGEST_FILE: Final = 32 * 1024 * 1024
MOST_FILES: Final = 20_000
"""Files of a folder that is searched for links: more than any chart has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """An application's folder, and the root of the repository that it is in; without links."""

    path: Path
    root: Path
    config_filename: str = ""

    @classmethod
    def open(cls, source: Source) -> "Folder":
        """Returns the folder of a commit's files. Raises StageFailedError when there is none."""
        path = Path(os.path.realpath(source.directory))
        if not path.is_dir():
            raise StageFailedError(f"the application's folder {str(path)!r} is not there")
        root = next((each for each in (path, *path.parents) if (each / ".git").exists()), path)
        return cls(path=path, root=root, config_filename=source.config_filename)

    def resolve(self, given: str, what: str, *, start: Path | None = None) -> Path:
        """Returns a path that is given from the application's folder, or from `start`.

        Raises StageFailedError for one that leads out of the repository, by `..` or by a link, or
        is not there.
        """
        path = resolve_within(self.root, (start or self.path), given, what, "the repository")
        if not path.exists():
            raise StageFailedError(
                f"{what} {given!r} is not in the repository",
                hint="paths are read from the application's folder",
            )
        return path

    def show(self, path: Path) -> str:
        """Returns what people call a file: its path from the application's folder."""
        return os.path.relpath(path, self.path)


def find_path_fault(given: str) -> str:
    """Returns why a text cannot be a path of a repository, empty when it can be.

    Whether it leads out is known where the repository is: see `Folder.resolve`.

    Example:
        >>> find_path_fault("/etc/passwd"), find_path_fault("../shared/web.yaml")
        ("not a path within the repository: '/etc/passwd'", '')
    """
    if given and "\0" not in given and not given.startswith("/"):
        return ""
    return f"not a path within the repository: {given[:100]!r}"


def resolve_within(within: Path, start: Path, given: str, what: str, name: str) -> Path:
    """Returns the real path of what is given. Raises StageFailedError when it is not `within`."""
    if "\0" in given or not given:
        raise StageFailedError(f"{what} {given!r} is not a path")
    path = Path(os.path.realpath(start / given))
    if path != within and within not in path.parents:
        raise StageFailedError(
            f"{what} {given!r} leads out of {name}", hint="by '..', by '/', or by a link"
        )
    if ".git" in path.relative_to(within).parts:
        raise StageFailedError(f"{what} {given!r} is of git itself, not of the commit")
    return path


def check_links(folder: Path, within: Path, what: str) -> None:
    """Raises StageFailedError when a link in a folder leads out of `within`: tools follow it."""
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            count += 1
            if count > MOST_FILES:
                raise StageFailedError(f"{what} has more than {MOST_FILES} files")
            path = Path(parent) / name
            if path.is_symlink():
                resolve_within(within, Path(parent), name, f"{what}: the link", "the repository")


def read_text(path: Path, what: str, *, largest: int = LARGEST_FILE) -> str:
    """Returns the text of a file of a repository. Raises StageFailedError."""
    try:
        if not path.is_file():
            raise StageFailedError(f"{what} is not a file")
        if path.stat().st_size > largest:
            raise StageFailedError(f"{what} has more than {largest} bytes")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise StageFailedError(f"{what} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StageFailedError(f"{what} is not UTF-8 at byte {error.start}") from None
