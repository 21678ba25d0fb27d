# SPDX-License-Identifier: Apache-2.0
"""What a stage is to do in one directory, handed to the thread that does it."""

import threading
from pathlib import Path
from typing import NamedTuple

from pipecd_plugin_files.plan import release_id
from pipecd_plugin_files.provider.site import ReleaseSite, SiteRelease
from pipecd_plugin_files.provider.tree import Digests, copy, present
from pipecd_plugin_files.source import SourceFolder
from pipecd_sdk import Deployment


class Order(NamedTuple):
    """One deployment to one directory."""

    site: ReleaseSite
    deployment: Deployment
    keep: int
    digests: Digests
    stop: threading.Event
    now: float


def make(
    order: Order, folder: SourceFolder, *, previous: str, rollback: bool = False
) -> SiteRelease:
    """Copies a folder to a new release, which is not the current one yet, and returns it."""
    name = release_id(order.deployment) + ("-rollback" if rollback else "")
    taken, count = set(order.site.ids()), 1
    made = name
    while made in taken:  # made by an earlier try and changed since: never repaired in place
        count += 1
        made = f"{name}.{count}"
    work = order.site.work_folder(made)
    release = SiteRelease(
        id=made,
        application=order.deployment.application_id,
        deployment=order.deployment.id,
        commit=folder.commit,
        created_at=order.now,
        previous=previous,
        rollback=rollback,
        files=copy(folder.path, str(work), folder.excluded, order.stop),
    )
    order.site.complete(release)
    return release


def is_intact(order: Order, release: SiteRelease) -> bool:
    """Returns whether all files of a release are as they were deployed."""
    return present(str(order.site.folder(release.id)), order.digests) == release.files


def relative(root: Path, into: str) -> Path:
    """Returns the directory of an application within that of a deploy target."""
    return root / into if into else root
