# SPDX-License-Identifier: Apache-2.0
"""Notices that services have changed: the API has no watch, so it is asked every 15 seconds."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pipecd_google.errors import GoogleError
from pipecd_plugin_cloudrun.naming import APPLICATION, MANAGED_BY, MANAGER, get_short_name
from pipecd_plugin_cloudrun.provider.cloud_run import CloudRun
from pipecd_sdk.kit.retries import Backoff

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 15.0
LONGEST_PAUSE_SECONDS: Final = 300.0

Listed = dict[str, dict[str, Any]]
"""Services of ours, by their short names."""
Seen = dict[str, tuple[str, str]]
"""By the name of a service: its application and its etag."""


def note_nothing(services: Mapping[str, dict[str, Any]], begun: float) -> None:
    """Leaves a list to nobody else."""


async def watch_services(
    cloud: CloudRun,
    target: str,
    announce: Callable[[str], None],
    *,
    note: Callable[[Listed, float], None] = note_nothing,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Announces the applications of services that have changed, until it is cancelled.

    `note` gets each list, and when its reading began, before anything of it is announced.
    """
    seen: Seen | None = None
    failing = Backoff(first_seconds=POLL_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
    while True:
        begun = time.monotonic()
        try:
            services = await _list(cloud)
        except GoogleError as error:
            if not failing.failures:
                log.warning(
                    "cloudrun.watch_failed",
                    extra={"fields": {"target": target, "reason": error.reason()}},
                )
            await sleep(failing.next_pause_seconds())
            continue
        if failing.failures:
            log.info("cloudrun.watch_recovered", extra={"fields": {"target": target}})
            failing.reset()
        note(services, begun)
        found = _summarize(services)
        for application in _find_changed(seen, found):
            announce(application)
        seen = found
        await sleep(POLL_SECONDS)


async def _list(cloud: CloudRun) -> Listed:
    found: Listed = {}
    async for service in cloud.iter_services():
        labels = service.get("labels")
        if isinstance(labels, dict) and labels.get(MANAGED_BY) == MANAGER:
            found[get_short_name(service.get("name"))] = service
    return found


def _summarize(services: Listed) -> Seen:
    return {
        name: (str(each["labels"].get(APPLICATION) or ""), str(each.get("etag")))
        for name, each in services.items()
    }


def _find_changed(before: Seen | None, after: Seen) -> list[str]:
    if before is None:  # the first look: piped asks for all live states at its start
        return []
    changed = set(before.items()) ^ set(after.items())
    return sorted({owner for _, (owner, _) in changed if owner})
