# SPDX-License-Identifier: Apache-2.0
"""FILES_ROLLBACK: lead the link of one directory back to where it led before the deployment."""

from pipecd_plugin_files.source import SourceFolder
from pipecd_plugin_files.stages.order import Order, is_intact, make


def roll_back(order: Order, running: SourceFolder | None) -> str:
    """Undoes this deployment in one directory; returns what was done. May be repeated.

    `running` is the folder of the commit that ran before, for a release that is gone or changed.
    """
    site = order.site
    with site.locked():
        current = site.current()
        if current is None or current.deployment != order.deployment.id:
            return "nothing to undo: this deployment has not changed it"
        if current.rollback:
            return f"is back already, at {current.id}"
        before = site.read(current.previous) if current.previous else None
        if before is not None and (running is None or is_intact(order, before)):
            site.switch(before.id)
            return f"is back at {before.id}"
        if running is not None:
            release = make(order, running, previous=current.previous, rollback=True)
            site.switch(release.id)
            site.prune(order.keep)
            return f"is back at commit {running.commit[:8]}, made anew as {release.id}"
        site.unlink()
        return "has no release, as before this deployment"
