# SPDX-License-Identifier: Apache-2.0
"""Find the application files of a commit; what did not change since the last look is not read."""

import asyncio
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import PipecdError
from piped.appconfig.reader import ApplicationFiles, Outcome
from piped.git import Repository
from piped.oplog import logger
from piped.source import ApplicationPlace, file_in

log = logger(__name__)

ENDING: Final = ".pipecd.yaml"
OLD_NAME: Final = ".pipe.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An application file of a commit."""

    place: ApplicationPlace
    blob_id: str
    outcome: Outcome


def is_application_file(path: str) -> bool:
    """Is a file taken for an application's by its name?"""
    return path.endswith(ENDING) or posixpath.basename(path) == OLD_NAME


async def scan(
    repository: Repository, commit: str, files: ApplicationFiles, before: Mapping[str, Found]
) -> dict[str, Found]:
    """All application files of a commit by their path; `before` is what the last look found."""
    listed = await repository.files(commit, ending=".yaml")
    named = [each for each in listed if is_application_file(each.path) and _is_text(each.path)]
    found: dict[str, Found] = {}
    new = []
    for each in named:
        known = before.get(each.path)
        if known is not None and known.blob_id == each.blob_id:
            found[each.path] = known
        else:
            new.append(each.path)
    objects = await repository.objects(commit, new)
    for path, each_object in zip(new, objects, strict=True):
        place = ApplicationPlace(folder=posixpath.dirname(path), file=path)
        file = file_in(each_object, place)
        if file is None:
            continue
        outcome = files.parse(file)
        if isinstance(outcome, PipecdError):
            log.info("application.file_broken", repository=repository.id, reason=str(outcome))
        found[path] = Found(place=place, blob_id=file.blob_id, outcome=outcome)
        await asyncio.sleep(0)  # thousands of files take seconds, and others have work to do
    return found


def _is_text(path: str) -> bool:
    """A path of other bytes cannot be told to anybody."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
