# SPDX-License-Identifier: Apache-2.0
"""Read application files at a commit, each version of a file parsed once.

Between git and the trigger: what comes out is a configuration, or the error that its author is
shown.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipecd_model.config import ApplicationConfig, ConfigFaultsError, load_application
from pipecd_model.errors import PipecdError
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from piped.git import Repository
from piped.oplog import logger
from piped.source import ApplicationFile, ApplicationPlace, file_in, missing, place_of

log = logger(__name__)

KEPT: Final = 10_000
"""Parsed files that are remembered; the oldest go first."""

Outcome = ApplicationConfig | PipecdError


class ApplicationFiles:
    """Parsed application files, by the blob that git keeps them in."""

    def __init__(self, *, keep: int = KEPT, names: Callable[[], Mapping[str, str]] = dict) -> None:
        """`names`: how well-known plugins are called here, for files of the older kinds."""
        self._keep = keep
        self._names = names
        self._parsed: dict[tuple[str, str, str], Outcome] = {}

    async def load(
        self, repository: Repository, commit: str, git_path: ApplicationGitPath
    ) -> ApplicationConfig:
        """The configuration of one application; raises the PipecdError that its author is shown."""
        (outcome,) = await self.load_all(repository, commit, [git_path])
        if isinstance(outcome, PipecdError):
            raise outcome
        return outcome

    async def load_all(
        self, repository: Repository, commit: str, git_paths: Sequence[ApplicationGitPath]
    ) -> list[Outcome]:
        """Many applications of one commit, in their order; what is wrong with one is its outcome.

        Raises GitError only when the repository itself cannot be read.
        """
        places: list[ApplicationPlace | PipecdError] = []
        for git_path in git_paths:
            try:
                places.append(place_of(git_path))
            except PipecdError as error:
                places.append(error)
        files = [place.file for place in places if isinstance(place, ApplicationPlace)]
        found = iter(await repository.objects(commit, files))
        outcomes: list[Outcome] = []
        for place in places:
            if isinstance(place, PipecdError):
                outcomes.append(place)
                continue
            try:
                file = file_in(next(found), place)
                if file is None:
                    outcomes.append(await missing(repository, commit, place))
                else:
                    outcomes.append(self.parse(file))
            except PipecdError as error:
                outcomes.append(error)
        return outcomes

    def parse(self, file: ApplicationFile) -> Outcome:
        """The configuration in a file, or all that is wrong with it."""
        names = self._names()
        key = (file.blob_id, file.place.file, repr(sorted(names.items())))
        outcome = self._parsed.pop(key, None)
        if outcome is None:
            try:
                loaded = load_application(file.data, file=file.place.file, names=names)
                outcome = loaded.config
                for warning in loaded.warnings:
                    log.warning("application.file_odd", warning=str(warning))
            except ConfigFaultsError as error:
                outcome = error
        self._parsed[key] = outcome
        if len(self._parsed) > self._keep:
            del self._parsed[next(iter(self._parsed))]
        return outcome
