# SPDX-License-Identifier: Apache-2.0
"""What a person sees who opens a directory, a release or a file of the live state."""

from collections.abc import Callable, Iterator
from typing import Final

from pipecd_plugin_files.compare import (
    LARGEST_TEXT,
    FileDifference,
    compare,
    drop_ignored,
    format_patch,
)
from pipecd_plugin_files.entry import Entry, format_path
from pipecd_plugin_files.livestate import SiteContent, content
from pipecd_plugin_files.plan import moment
from pipecd_plugin_files.provider.site import SiteRelease
from pipecd_plugin_files.provider.tree import Digests, read_desired
from pipecd_plugin_files.source import SourceFolder
from pipecd_sdk import Details, Resource, ResourceEvent, ResourceGoneError

MOST_RELEASES: Final = 50
"""Releases whose history is shown, the latest."""


def describe(
    name: str,
    resource: Resource,
    application_id: str,
    seen: SiteContent,
    folder: SourceFolder,
    digests: Digests,
) -> Details:
    """Returns the details of a resource of the deploy target `name`. Raises ResourceGoneError."""
    release = seen.release
    if release is not None and release.application != application_id:
        raise ResourceGoneError(
            f"{str(seen.site.root)!r} holds a release of another application",
            hint="two applications must not have the same directory",
        )
    wanted = read_desired(folder.path, folder.excluded, digests)
    found = drop_ignored(compare(seen.files, wanted), folder.options.ignore_drift)
    parent = f"{name}/{release.id}" if release is not None else ""
    if resource.id == name or (parent and resource.id in {parent, f"{parent}/…"}):
        return Details(
            manifest=_describe_site(seen),
            events=list(_history(seen)),
            difference=_patch(found, seen, folder),
        )
    path = resource.id.removeprefix(f"{parent}/")
    known = path in seen.files or path in wanted or (release is not None and path in release.files)
    if not parent or path == resource.id or not known:
        raise ResourceGoneError(
            f"{format_path(resource.name)} is not in the current release any more",
            hint="the live state shows what is there now",
        )
    text, notes = _read(seen, path, folder.hidden)
    return Details(
        manifest=text,
        language="",
        difference=_patch([each for each in found if each.path == path], seen, folder),
        notes=notes,
    )


def _describe_site(seen: SiteContent) -> str:
    # Here and not above: a plugin that only waits for work needs no parser in memory.
    from pipecd_sdk.kit import yaml  # noqa: PLC0415

    facts: dict[str, object] = {"path": str(seen.site.root)}
    if (release := seen.release) is not None:
        facts |= {
            "release": release.id,
            "commit": release.commit,
            "deployment": release.deployment,
            "created": f"{moment(release.created_at):%Y-%m-%dT%H:%M:%SZ}",
            "files": len(seen.files),
        }
    return yaml.dump(facts)


def _history(seen: SiteContent) -> Iterator[ResourceEvent]:
    for release_id in seen.site.ids()[-MOST_RELEASES:]:
        release = seen.site.read(release_id)
        if release is not None:
            yield ResourceEvent(
                at=moment(release.created_at),
                kind="Normal",
                reason="RolledBack" if release.rollback else "Released",
                message=_tell(release, is_current=release_id == getattr(seen.release, "id", "")),
            )


def _tell(release: SiteRelease, *, is_current: bool) -> str:
    now = ", which is the current one" if is_current else ""
    files = f"{len(release.files)} file{'s' if len(release.files) != 1 else ''}"
    return f"{files} of {release.commit[:7]} as {release.id}{now}"


def _patch(found: list[FileDifference], seen: SiteContent, folder: SourceFolder) -> str:
    return format_patch(found, seen.read, lambda path: content(folder.path, path), folder.hidden)


def _read(seen: SiteContent, path: str, hidden: Callable[[str], bool]) -> tuple[str, list[str]]:
    """Returns the content of a deployed file, or why it is not shown."""
    entry: Entry | None = seen.files.get(path)
    if entry is None:
        return "", ["the file is missing"]
    if entry.kind == "link":
        return f"link to {format_path(entry.digest)}\n", []
    if hidden(path):
        return "", ["the content is not shown, because it may hold secrets"]
    if entry.kind != "file" or entry.size > LARGEST_TEXT:
        return "", [f"the content is not shown: it has {entry.size} bytes"]
    data = seen.read(path)
    if data is None:
        return "", ["the file cannot be read"]
    if b"\0" in data:
        return "", ["the content is not shown: it is no text"]
    return data.decode(errors="backslashreplace"), []
