# SPDX-License-Identifier: Apache-2.0
"""Notices that services have changed: the API has no watch, so it is asked every 15 seconds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pipecd_google.errors import GoogleError
from pipecd_plugin_cloudrun.naming import APPLICATION, MANAGED_BY, MANAGER
from pipecd_plugin_cloudrun.provider.cloud_run import CloudRun
from pipecd_sdk.kit.retries import Backoff

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 15.0
LONGEST_PAUSE_SECONDS: Final = 300.0

Seen = dict[str, tuple[str, str]]
"""By the name of a service: its application and its etag."""


async def watch_services(
    cloud: CloudRun,
    target: str,
    announce: Callable[[str], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Announces the applications of services that have changed, until it is cancelled."""
    seen: Seen | None = None
    failing = Backoff(first_seconds=POLL_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
    while True:
        try:
            found = await _list(cloud)
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
        for application in _find_changed(seen, found):
            announce(application)
        seen = found
        await sleep(POLL_SECONDS)


async def _list(cloud: CloudRun) -> Seen:
    found: Seen = {}
    async for service in cloud.iter_services():
        labels = service.get("labels")
        if isinstance(labels, dict) and labels.get(MANAGED_BY) == MANAGER:
            owner = str(labels.get(APPLICATION) or "")
            found[str(service.get("name"))] = (owner, str(service.get("etag")))
    return found


def _find_changed(before: Seen | None, after: Seen) -> list[str]:
    if before is None:  # the first look: piped asks for all live states at its start
        return []
    changed = set(before.items()) ^ set(after.items())
    return sorted({owner for _, (owner, _) in changed if owner})
