# SPDX-License-Identifier: Apache-2.0
"""What runs, asked of the API no more than needed: piped asks for every application every minute.

The services are those of the list that the watch reads anyway. Revisions are read when the service
has changed, and else after a while, which doubles up to five minutes; so is what is in no list.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from pipecd_plugin_cloudrun.livestate import LiveResources, read_live
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.provider.cloud_run import CloudRun
from pipecd_sdk import LiveContext
from pipecd_sdk.kit.rereads import Reread

LISTED_SECONDS: Final = 20.0
"""How long a list counts: a little longer than the watch waits between two."""
FIRST_PAUSE: Final = timedelta(minutes=1)
LONGEST_PAUSE: Final = timedelta(minutes=5)
RETRY_SECONDS: Final = 20.0
"""How long a call is made again: piped waits for a minute, and asks again anyway."""

Body = dict[str, Any]


class ListedServices:
    """The services of one deploy target, as the watch has listed them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._services: Mapping[str, Body] = {}
        self._begun = float("-inf")
        self._changed: dict[str, float] = {}
        """When stages of applications changed something."""
        self._wanted = asyncio.Event()

    async def wait_wanted(self) -> None:
        """Waits until an application asks for a service: until then nobody needs a list."""
        await self._wanted.wait()

    def note(self, services: Mapping[str, Body], begun: float) -> None:
        """Keeps a list whose reading began then, by the names of the services."""
        self._services, self._begun = services, begun
        self._changed = {each: at for each, at in self._changed.items() if at >= begun}

    def find(self, name: str, application_id: str) -> Body | None:
        """Returns a service, None when it is in no list that is new enough."""
        self._wanted.set()
        is_old = self._now() - self._begun > LISTED_SECONDS
        if is_old or self._changed.get(application_id, float("-inf")) >= self._begun:
            return None
        return self._services.get(name)

    def forget(self, application_id: str) -> None:
        """Lets no list count for an application that was begun before: a stage has changed it."""
        self._changed[application_id] = self._now()


class RunObserver:
    """What is known of the services and jobs of all applications."""

    def __init__(self) -> None:
        self._listed: dict[str, ListedServices] = {}
        self._known: dict[tuple[str, str], Reread[LiveResources]] = {}

    def get_listed(self, target: str) -> ListedServices:
        """Returns the services of a deploy target."""
        return self._listed.setdefault(target, ListedServices())

    async def look(
        self,
        cloud: CloudRun,
        manifest: RunManifest,
        ctx: LiveContext,
        target: str,
        *,
        is_fresh: bool = False,
    ) -> LiveResources:
        """Returns what runs; `is_fresh`: now. Raises GoogleError, for a while the same."""
        known = self._known.get((ctx.application_id, target))
        if known is None:
            known = self._known[ctx.application_id, target] = Reread(
                first=FIRST_PAUSE, longest=LONGEST_PAUSE
            )
        listed: Body | None = None
        if not is_fresh and not manifest.is_job:
            listed = self.get_listed(target).find(manifest.name, ctx.application_id)
        digest = hashlib.blake2b(repr(listed).encode(), digest_size=16).digest()
        policy = replace(cloud.api.policy, total_seconds=RETRY_SECONDS)
        brief = replace(cloud, api=replace(cloud.api, policy=policy))
        live = await known.get(
            (manifest.kind, manifest.name, digest),
            partial(read_live, brief, manifest, ctx.application_id, listed),
            clock=ctx.clock,
            is_fresh=is_fresh,
        )
        if live.root is None:
            known.forget()  # whatever is made under this name is noticed the next time
        return live

    def forget(self, application_id: str) -> None:
        """Lets everything of an application be read anew: a stage has changed it."""
        for listed in self._listed.values():
            listed.forget(application_id)
        for (each, _), known in self._known.items():
            if each == application_id:
                known.forget()
