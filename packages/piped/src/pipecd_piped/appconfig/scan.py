# SPDX-License-Identifier: Apache-2.0
"""Find the application files of a commit; files unchanged since the last scan are not read.

A file that cannot be read is left out and logged; the others are not affected.
"""

import asyncio
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipecd_model.config.document import LARGEST_FILE
from pipecd_model.errors import PipecdError
from pipecd_model.gitnames import BadGitNameError, RepositoryPath
from pipecd_piped.appconfig.reader import READ_AT_ONCE, ApplicationFiles, Outcome
from pipecd_piped.git import DamagedMirrorError, Repository
from pipecd_piped.git.objects import Absent, GitObject
from pipecd_piped.source import ApplicationPlace, file_in
from pipecd_runtime.logs import logger

log = logger(__name__)

ENDING: Final = ".pipecd.yaml"
OLD_NAME: Final = ".pipe.yaml"

_LONGEST_REASON: Final = 2000

MOST_TEXT: Final = 64 * 1024 * 1024
"""Bytes of all application files of a repository: they are kept in memory, the rest is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """An application file of a commit."""

    place: ApplicationPlace
    blob_id: str
    outcome: Outcome
    size: int = 0
    """Bytes of the file."""


@dataclass(slots=True, kw_only=True)
class Scan:
    """The application files of a commit, by path."""

    files: dict[str, ScannedFile] = field(default_factory=dict)
    is_complete: bool = True
    """False when files could not be read that may be readable later."""


def is_application_file(path: str) -> bool:
    """Returns whether a path has the name of an application file."""
    return path.endswith(ENDING) or posixpath.basename(path) == OLD_NAME


async def scan(
    repository: Repository, commit: str, files: ApplicationFiles, before: Mapping[str, ScannedFile]
) -> Scan:
    """Returns all application files of a commit; `before` are those of the last scan."""
    listed = await repository.files(commit, ending=".yaml")
    made = Scan()
    new = []
    text = 0
    for each in listed:
        if not is_application_file(each.path) or not _can_be_told(each.path):
            continue
        known = before.get(each.path)
        if known is not None and known.blob_id == each.blob_id:
            made.files[each.path] = known
            text += known.size
        else:
            new.append(each.path)
    for some in _portions(new):
        found = await repository.objects(commit, some, largest=LARGEST_FILE)
        for path, each_object in zip(some, found, strict=True):
            if text > MOST_TEXT:
                log.warning(
                    "application.too_many_files",
                    repository=repository.id,
                    left_out=len(listed) - len(made.files),
                    limit_bytes=MOST_TEXT,
                )
                return made
            text += _take(made, repository.id, path, each_object, files)
            await asyncio.sleep(0)  # thousands of files take seconds: let other tasks run
    return made


def _take(
    made: Scan, repository_id: str, path: str, found: GitObject | Absent, files: ApplicationFiles
) -> int:
    """Add one file to the scan; returns its size in bytes, 0 when it cannot be read."""
    place = ApplicationPlace(folder=posixpath.dirname(path), file=path)
    try:
        file = file_in(found, place)
    except PipecdError as error:
        log.warning("application.file_unread", repository=repository_id, reason=str(error))
        made.is_complete &= not isinstance(error, DamagedMirrorError)
        return 0
    if file is None:
        return 0
    outcome = files.parse(file)
    if isinstance(outcome, PipecdError):
        reason = str(outcome)[:_LONGEST_REASON]
        log.info("application.file_broken", repository=repository_id, reason=reason)
    size = len(file.data)
    made.files[path] = ScannedFile(place=place, blob_id=file.blob_id, outcome=outcome, size=size)
    return size


def _portions(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), READ_AT_ONCE):
        yield paths[start : start + READ_AT_ONCE]


def _can_be_told(path: str) -> bool:
    """Returns whether an application could be registered with this path, e.g. no newline."""
    try:
        RepositoryPath(path)
    except BadGitNameError:
        return False
    return True
