# SPDX-License-Identifier: Apache-2.0
"""Tells piped which applications have changed on their platform, as soon as a plugin says so."""

import asyncio
import logging
from typing import Final

from pipecd_runtime.backoff import Backoff
from pipecd_sdk._glue.entry import Setup
from pipecd_sdk._glue.piped import PipedClient
from pipecd_sdk.livestate import LiveWatch, WatchContext
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.rpc import CallError, call

log = logging.getLogger(__name__)

GAP_SECONDS: Final = 0.2
"""The least seconds between two announcements: a rollout changes many things at once."""
AWAY_SECONDS: Final = 2.0
"""Seconds until the next attempt while piped does not answer."""
MOST_AT_ONCE: Final = 1_000
"""Applications in one message."""
DEADLINE_SECONDS: Final = 5.0
FIRST_RESTART_SECONDS: Final = 1.0
LONGEST_RESTART_SECONDS: Final = 60.0


class Announcer:
    """Collects applications that have changed, and sends them together."""

    def __init__(self, piped: PipedClient) -> None:
        self._piped = piped
        self._changed: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._is_known = True

    def announce(self, application_id: str) -> None:
        """Sends the id of an application soon; returns at once."""
        if application_id and self._piped.managed and self._is_known:
            self._changed[application_id] = None
            self._wanted.set()

    async def run(self) -> None:
        """Sends what is announced until cancelled, or until piped turns out not to know the RPC."""
        while self._is_known:
            await self._wanted.wait()
            sent = list(self._changed)[:MOST_AT_ONCE]
            for application_id in sent:
                del self._changed[application_id]
            await asyncio.sleep(await self._send(sent))
            if not self._changed:
                self._wanted.clear()

    async def _send(self, application_ids: list[str]) -> float:
        """Sends one message; returns the seconds to wait before the next."""
        request = plugin_pb2.AnnounceLiveStatesRequest(application_ids=application_ids)
        try:
            await call(
                self._piped.management.AnnounceLiveStates, request, deadline=DEADLINE_SECONDS
            )
        except CallError as error:
            if error.status in {"UNIMPLEMENTED", "INVALID_ARGUMENT"}:
                # An older piped, or an id that no retry makes right: piped asks by itself.
                self._is_known = error.status != "UNIMPLEMENTED"
                return GAP_SECONDS
            log.debug("announcement.unsent", extra={"fields": {"error": str(error)}})
            self._changed.update(dict.fromkeys(application_ids))
            return AWAY_SECONDS
        return GAP_SECONDS


async def keep_watching(plugin: LiveWatch, setup: Setup, piped: PipedClient) -> None:
    """Runs a plugin's watch until cancelled; one that fails is logged and started again."""
    announcer = Announcer(piped)
    ctx = WatchContext(targets=tuple(setup.targets.values()), announce=announcer.announce)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(announcer.run(), name="announcements")
        pauses = Backoff(
            first_seconds=FIRST_RESTART_SECONDS, longest_seconds=LONGEST_RESTART_SECONDS, jitter=0
        )
        while True:
            try:
                await plugin.watch(ctx)
            except Exception:
                # The plugin's bug: stages and questions are still served, watches begin anew.
                log.exception("watch.failed", extra={"fields": {"plugin": setup.name}})
            else:
                return
            await asyncio.sleep(pauses.next_pause_seconds())
