# SPDX-License-Identifier: Apache-2.0
"""What is really in a directory, and whether it is what git says."""

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from pipecd_plugin_files.compare import (
    FileDifference,
    compare,
    drop_ignored,
    format_counts,
    format_patch,
)
from pipecd_plugin_files.entry import Entry, Tree, format_path
from pipecd_plugin_files.plan import moment
from pipecd_plugin_files.provider.site import ReleaseSite, SiteError, SiteRelease
from pipecd_plugin_files.provider.tree import Digests, present, read_desired
from pipecd_plugin_files.source import SourceFolder
from pipecd_sdk import Health, LiveSnapshot, Resource, SyncState, SyncStatus, TargetError

MOST_FILES: Final = 1_000
"""Files that are shown one by one, those in trouble first."""


class SiteContent(NamedTuple):
    """What was found in a directory."""

    site: ReleaseSite
    release: SiteRelease | None
    files: Tree

    def read(self, path: str) -> bytes | None:
        """Returns the content of a deployed file, None when it cannot be read."""
        return None if self.release is None else content(self.site.folder(self.release.id), path)


def content(folder: Path | str, path: str) -> bytes | None:
    """Returns the content of a file in a folder, None when it cannot be read or is a link."""
    try:
        number = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_NOFOLLOW)  # noqa: PTH118
    except OSError:
        return None
    with os.fdopen(number, "rb") as file:
        return file.read()


def look(site: ReleaseSite, digests: Digests) -> SiteContent:
    """Returns the current release of a directory with its files. Raises TargetError."""
    try:
        release = site.current()
        if release is None and (dangling := site.current_id()) is not None:
            raise TargetError(
                f"{str(site.link)!r} leads to {dangling!r}, which is not complete",
                hint="sync the application",
            )
        files = {} if release is None else present(str(site.folder(release.id)), digests)
    except SiteError as error:
        raise TargetError(str(error), hint=error.hint) from error
    return SiteContent(site=site, release=release, files=files)


def live(name: str, seen: SiteContent) -> LiveSnapshot:
    """Returns the resources of a deploy target: itself, its release and its files."""
    if seen.release is None:
        target = Resource(
            id=name,
            name=name,
            kind="Directory",
            health=Health.UNHEALTHY,
            description="nothing is deployed here",
            metadata={"path": str(seen.site.root)},
        )
        return LiveSnapshot(resources=[target], data=seen)
    wrong = compare(seen.files, seen.release.files)
    health = Health.UNHEALTHY if wrong else Health.HEALTHY
    description = f"not as it was deployed: {format_counts(wrong)}" if wrong else ""
    created = moment(seen.release.created_at)
    release_id = f"{name}/{seen.release.id}"
    resources = [
        Resource(
            id=name,
            name=name,
            kind="Directory",
            health=health,
            description=description,
            metadata={"path": str(seen.site.root), "release": seen.release.id},
            created_at=created,
        ),
        Resource(
            id=release_id,
            name=seen.release.id,
            kind="Release",
            parents=[name],
            health=health,
            description=description,
            metadata={
                "commit": seen.release.commit,
                "deployment": seen.release.deployment,
                "files": str(len(seen.files)),
            },
            created_at=created,
        ),
        *_files(release_id, seen, seen.release, {each.path: each for each in wrong}),
    ]
    return LiveSnapshot(resources=resources, data=seen)


def _files(
    parent: str, seen: SiteContent, release: SiteRelease, wrong: dict[str, FileDifference]
) -> Iterator[Resource]:
    folder = str(seen.site.folder(release.id))
    deployed = moment(release.created_at)
    paths = [*wrong, *sorted(seen.files.keys() - wrong.keys())]
    for path in paths[:MOST_FILES]:
        found = wrong.get(path)
        entry = seen.files.get(path)
        yield Resource(
            id=f"{parent}/{path}",
            name=format_path(path),
            kind="File" if entry is None or entry.kind == "file" else entry.kind.title(),
            parents=[parent],
            health=Health.UNHEALTHY if found else Health.HEALTHY,
            description=found.difference.value if found else "",
            metadata=_facts(entry),
            created_at=deployed if entry is None else _find_time(folder, path) or deployed,
        )
    if (more := len(paths) - MOST_FILES) > 0:
        yield Resource(
            id=f"{parent}/…",
            name=f"… and {more} more files",
            kind="Files",
            parents=[parent],
            health=Health.HEALTHY,
            created_at=deployed,
        )


def _find_time(folder: str, path: str) -> datetime | None:
    """Returns when a file was written; None when it is gone by now, or has no time that is one."""
    try:
        return moment(os.lstat(os.path.join(folder, path)).st_mtime)  # noqa: PTH118
    except (OSError, ValueError, OverflowError):
        return None


def _facts(entry: Entry | None) -> dict[str, str]:
    if entry is None:
        return {}
    if entry.kind == "link":
        return {"to": format_path(entry.digest)}
    return {"mode": f"{entry.mode:04o}", "size": str(entry.size), "sha256": entry.digest}


def drift(seen: SiteContent, folder: SourceFolder, digests: Digests) -> SyncState:
    """Compares a directory with the folder of the commit; returns whether they match."""
    if seen.release is None:
        reason = "nothing is deployed here"
        return SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason=reason, reason=reason)
    found = drop_ignored(
        compare(seen.files, read_desired(folder.path, folder.excluded, digests)),
        folder.options.ignore_drift,
    )
    if not found:
        return SyncState(status=SyncStatus.SYNCED)
    short = format_counts(found)
    text = format_patch(found, seen.read, lambda path: content(folder.path, path), folder.hidden)
    return SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason=short, reason=f"{short}\n\n{text}")
