# SPDX-License-Identifier: Apache-2.0
"""Read application files at a commit, each version of a file parsed once.

Between git and the trigger: the result for each file is a configuration, or the error that its
author is shown.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipecd_model.config import ApplicationConfig, ConfigFaultsError, load_application
from pipecd_model.config.document import LARGEST_FILE
from pipecd_model.errors import PipecdError, SourceError
from pipecd_piped.git import Repository
from pipecd_piped.source import (
    ApplicationFile,
    ApplicationPlace,
    file_in,
    missing_file_error,
    place_of,
)
from pipecd_runtime.logs import logger
from pipecd_wire.model.common_pb2 import ApplicationGitPath

log = logger(__name__)

KEPT: Final = 10_000
"""Parsed files in the cache; the least recently used are dropped first."""

READ_AT_ONCE: Final = 16
"""Files that are in memory together, each of at most LARGEST_FILE bytes."""

_LONGEST_NAME: Final = 500
_LONGEST_DESCRIPTION: Final = 64 * 1024
_MOST_LABEL_TEXT: Final = 64 * 1024
"""The most characters that are reported of one application: many share one report."""

_WARNINGS_TOLD: Final = 20

Outcome = ApplicationConfig | PipecdError


class ApplicationFiles:
    """Parsed application files, by the blob that git keeps them in."""

    def __init__(self, *, keep: int = KEPT, names: Callable[[], Mapping[str, str]] = dict) -> None:
        """`names`: the configured names of well-known plugins, for files of the older kinds."""
        self._keep = keep
        self._names = names
        self._parsed: dict[tuple[str, str, str], Outcome] = {}

    async def load(
        self, repository: Repository, commit: str, git_path: ApplicationGitPath
    ) -> ApplicationConfig:
        """Returns the configuration of an application; raises the PipecdError for its author."""
        (outcome,) = await self.load_all(repository, commit, [git_path])
        if isinstance(outcome, PipecdError):
            raise outcome
        return outcome

    async def load_all(
        self, repository: Repository, commit: str, git_paths: Sequence[ApplicationGitPath]
    ) -> list[Outcome]:
        """Returns a configuration, or the error, for each path of one commit, in their order.

        Raises GitError only when the repository itself cannot be read.
        """
        places: list[ApplicationPlace | PipecdError] = []
        for git_path in git_paths:
            try:
                places.append(place_of(git_path))
            except PipecdError as error:
                places.append(error)
        outcomes: list[Outcome] = []
        for start in range(0, len(places), READ_AT_ONCE):
            some = places[start : start + READ_AT_ONCE]
            outcomes += await self._load_some(repository, commit, some)
        return outcomes

    async def _load_some(
        self,
        repository: Repository,
        commit: str,
        places: Sequence[ApplicationPlace | PipecdError],
    ) -> list[Outcome]:
        files = [place.file for place in places if isinstance(place, ApplicationPlace)]
        found = iter(await repository.objects(commit, files, largest=LARGEST_FILE))
        outcomes: list[Outcome] = []
        for place in places:
            if isinstance(place, PipecdError):
                outcomes.append(place)
                continue
            try:
                file = file_in(next(found), place)
                if file is None:
                    outcomes.append(await missing_file_error(repository, commit, place))
                else:
                    outcomes.append(self.parse(file))
                    await asyncio.sleep(0)  # a large file takes long: let other tasks run
            except PipecdError as error:
                outcomes.append(error)
        return outcomes

    def parse(self, file: ApplicationFile) -> Outcome:
        """Returns the configuration in a file, or an error with all its faults; cached by blob."""
        names = self._names()
        key = (file.blob_id, file.place.file, repr(sorted(names.items())))
        outcome = self._parsed.pop(key, None)
        if outcome is None:
            outcome = _parse(file, names)
        self._parsed[key] = outcome
        if len(self._parsed) > self._keep:
            del self._parsed[next(iter(self._parsed))]
        return outcome


def _parse(file: ApplicationFile, names: Mapping[str, str]) -> Outcome:
    path = file.place.file
    try:
        loaded = load_application(file.data, file=path, names=names)
    except ConfigFaultsError as error:
        return error
    except Exception:  # noqa: BLE001 - a bug of ours, met by one file: the others go on
        log.bug("application.file_not_read", file=path)
        return SourceError(
            f"{path!r} cannot be read because of a mistake in piped",
            hint="its log has the details; a simpler file may do meanwhile",
        )
    for warning in loaded.warnings[:_WARNINGS_TOLD]:
        log.warning("application.file_odd", warning=str(warning))
    return _too_long(path, loaded.config) or loaded.config


def _too_long(path: str, config: ApplicationConfig) -> SourceError | None:
    """Returns an error when the name, description or labels are too long to be reported."""
    labels = sum(len(key) + len(value) for key, value in config.labels.items())
    for what, length, most in (
        ("spec.name", len(config.name), _LONGEST_NAME),
        ("spec.description", len(config.description), _LONGEST_DESCRIPTION),
        ("spec.labels", labels, _MOST_LABEL_TEXT),
    ):
        if length > most:
            return SourceError(
                f"{path}: {what} is too long: {length} characters", hint=f"at most {most}"
            )
    return None
