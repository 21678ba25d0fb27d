# SPDX-License-Identifier: Apache-2.0
"""FILES_SYNC, FILES_CANARY_ROLLOUT, FILES_PRIMARY_ROLLOUT: bring one directory to the commit.

A retry after a crash resumes: a complete release is used, an incomplete one is removed, and a
directory that has the release already is left alone.
"""

from pipecd_plugin_files.provider.site import SiteError, SiteRelease
from pipecd_plugin_files.source import SourceFolder
from pipecd_plugin_files.stages.order import Order, is_intact, make


def roll_out(order: Order, folder: SourceFolder) -> tuple[SiteRelease, bool]:
    """Makes the release, switches the link to it, removes old ones.

    Returns the release, and whether it was new. Raises SiteError.
    """
    site = order.site
    with site.locked():
        current = site.current()
        _must_be_ours(order, current)
        if current is not None and _is_made(order, folder, current):
            site.prune(order.keep)
            return current, False
        release = _find_unfinished(order, folder) or make(
            order, folder, previous=_find_previous(order)
        )
        site.switch(release.id)
        site.prune(order.keep)
    return release, True


def _must_be_ours(order: Order, current: SiteRelease | None) -> None:
    if current is not None and current.application != order.deployment.application_id:
        raise SiteError(
            f"{str(order.site.root)!r} belongs to another application",
            hint="give each application a folder of its own with `into`",
        )


def _is_made(order: Order, folder: SourceFolder, release: SiteRelease) -> bool:
    """Returns whether this deployment made the release, from this commit, and it is intact."""
    return (
        release.deployment == order.deployment.id
        and not release.rollback
        and release.commit == folder.commit
        and is_intact(order, release)
    )


def _find_unfinished(order: Order, folder: SourceFolder) -> SiteRelease | None:
    """Returns a release that this deployment made and did not switch to, None without one."""
    for release_id in reversed(order.site.ids()):
        release = order.site.read(release_id)
        if release is not None and _is_made(order, folder, release):
            return release
    return None


def _find_previous(order: Order) -> str:
    """Returns the id of the release to go back to, the last one of another deployment."""
    current = order.site.current()
    if current is None:
        return ""
    return current.previous if current.deployment == order.deployment.id else current.id
