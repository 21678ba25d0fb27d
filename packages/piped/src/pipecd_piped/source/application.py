# SPDX-License-Identifier: Apache-2.0
"""An application's folder and file in one commit, found without leaving the repository."""

import posixpath
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import SourceError
from pipecd_model.gitnames import BadGitNameError, RepositoryPath
from pipecd_piped.git import Repository
from pipecd_piped.git.objects import Absent, GitObject
from pipecd_piped.git.repository import unreadable
from pipecd_wire.model.common_pb2 import ApplicationGitPath

OLD_FILENAME: Final = ".pipe.yaml"
"""What an application file was called before its name was recorded with the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationPlace:
    """An application's folder and file: paths from the repository's root, which is empty."""

    folder: str
    file: str

    @property
    def filename(self) -> str:
        """The name of the file, without its folder."""
        return posixpath.basename(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFile:
    """An application file as one commit has it."""

    place: ApplicationPlace
    blob_id: str
    data: bytes


def place_of(git_path: ApplicationGitPath, config_filename: str = "") -> ApplicationPlace:
    """Returns the folder and file of an application; raises SourceError for a path that leads out.

    `config_filename` stands in for the application's own, e.g. for what ran under an older name.
    """
    folder = _inside(git_path.path)
    name = config_filename or git_path.config_filename or OLD_FILENAME
    return ApplicationPlace(folder=folder, file=_inside(posixpath.join(folder, name)))


def file_in(found: GitObject | Absent, place: ApplicationPlace) -> ApplicationFile | None:
    """Returns the file that was read from git; None when the commit does not have it.

    Raises GitError when the file exists and cannot be read: DamagedMirrorError when the mirror is
    at fault, so that a retry may succeed.
    """
    if isinstance(found, GitObject):
        if found.kind != "blob":
            return None
        return ApplicationFile(place=place, blob_id=found.id, data=found.data)
    if found.why in {"missing", "nowhere"}:
        return None
    raise unreadable(place.file, found)


async def find_application(
    repository: Repository, commit: str, place: ApplicationPlace
) -> ApplicationFile:
    """Read an application's file; raises SourceError when the commit has none."""
    (found,) = await repository.objects(commit, [place.file])
    if (file := file_in(found, place)) is not None:
        return file
    raise await missing_file_error(repository, commit, place)


async def missing_file_error(
    repository: Repository, commit: str, place: ApplicationPlace
) -> SourceError:
    """Returns the error that says what a commit lacks: the folder, or the file in it."""
    short = commit[:7]
    if await repository.kind(commit, place.folder) != "tree":
        return SourceError(
            f"commit {short} has no folder {place.folder!r}",
            hint="it was moved or deleted, or the application's path is wrong",
        )
    return SourceError(
        f"commit {short} has no application file {place.file!r}",
        hint="it was renamed or deleted, or the application's file name is wrong",
    )


def _inside(path: str) -> RepositoryPath:
    try:
        return RepositoryPath(path)
    except BadGitNameError as error:
        raise SourceError(
            str(error), hint="write the application's path from the repository's root"
        ) from None
