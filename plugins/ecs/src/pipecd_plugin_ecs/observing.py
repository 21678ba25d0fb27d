# SPDX-License-Identifier: Apache-2.0
"""What runs, asked of AWS no more than needed: piped asks for every application every minute.

Services of a cluster are described ten in a call. Their task sets and tasks are read when the
service has changed, as its counts, events and deployments tell, and else after a few minutes.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from pipecd_aws import AwsError
from pipecd_aws.retries import THROTTLING, TRANSIENT
from pipecd_aws.sign_in import Clients
from pipecd_plugin_ecs.definition import Definitions
from pipecd_plugin_ecs.livestate import Seen, look_at_service, look_at_tasks
from pipecd_plugin_ecs.provider.ecs import MOST_SERVICES_AT_ONCE, EcsClient
from pipecd_plugin_ecs.provider.model import Service
from pipecd_sdk.kit.rereads import Reread
from pipecd_sdk.kit.retries import Backoff

KEPT: Final = timedelta(seconds=40)
"""How long a description counts, e.g. one that was read along with another: less than a minute."""
ASKED_LATELY: Final = timedelta(minutes=10)
"""A service that nobody has asked for since is not described along with others any more."""
FIRST_PAUSE: Final = timedelta(minutes=1)
LONGEST_PAUSE: Final = timedelta(minutes=5)
RETRY_TIME: Final = timedelta(seconds=20)
"""How long a call is tried again: piped waits for a minute, and asks again anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """A service as it was described, or why it was not."""

    service: Service | None = None
    failure: AwsError | None = None
    since: datetime
    until: datetime


class ServiceDescriptions:
    """The services of one cluster that applications ask for."""

    def __init__(self) -> None:
        self._known: dict[str, _Description] = {}
        self._asked: dict[str, datetime] = {}
        self._failing = Backoff(
            first_seconds=KEPT.total_seconds(), longest_seconds=LONGEST_PAUSE.total_seconds()
        )
        self._forgotten: set[str] = set()
        """Since the last call has begun."""
        self._turn = asyncio.Lock()

    async def find(self, client: EcsClient, name: str, *, is_fresh: bool = False) -> Service | None:
        """Returns a service, None when there is none. Raises AwsError, for a while the same."""
        async with self._turn:
            now = client.account.clock.now()
            self._asked[name] = now
            known = self._known.get(name)
            if is_fresh or known is None or not known.since <= now < known.until:
                names = [name] if is_fresh else [name, *self._choose_others(name, now)]
                await self._describe(client, names, now)
            known = self._known[name]
            if known.failure is not None:
                raise known.failure.with_traceback(None)
            return known.service

    def forget(self, name: str) -> None:
        """Lets a service be described anew: a stage has changed it."""
        self._known.pop(name, None)
        self._forgotten.add(name)

    def _choose_others(self, name: str, now: datetime) -> Iterator[str]:
        """Yields those that will be asked for next: their descriptions are the oldest."""
        self._asked = {each: at for each, at in self._asked.items() if now - at < ASKED_LATELY}
        self._known = {each: found for each, found in self._known.items() if each in self._asked}
        others = sorted(self._known.items(), key=lambda item: item[1].until)
        old = [each for each, found in others if found.until < now + KEPT / 2 and each != name]
        yield from old[: MOST_SERVICES_AT_ONCE - 1]

    async def _describe(self, client: EcsClient, names: list[str], now: datetime) -> None:
        self._forgotten.clear()
        try:
            found = await client.describe_services(names)
        except AwsError as error:
            is_about_one = error.code and error.code not in THROTTLING | TRANSIENT
            if is_about_one and len(names) > 1:
                await self._describe(client, names[:1], now)  # perhaps about one of the others
                return
            pause = timedelta(seconds=self._failing.next_pause_seconds())
            until = client.account.clock.now() + pause
            self._known |= {
                each: _Description(failure=error, since=now, until=until) for each in names
            }
            return
        self._failing.reset()
        for each in names:
            # One that a stage has changed meanwhile may be described as it was before.
            until = now if each in self._forgotten else now + KEPT
            self._known[each] = _Description(service=found.get(each), since=now, until=until)


class EcsObserver:
    """What is known of the services and tasks of all applications."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[Clients, str], ServiceDescriptions] = {}
        self._seen: dict[tuple[str, str], Reread[Seen]] = {}

    async def look(
        self,
        client: EcsClient,
        definitions: Definitions,
        application_id: str,
        target: str,
        *,
        is_fresh: bool = False,
    ) -> Seen:
        """Returns what runs of an application. Raises AwsError.

        `is_fresh`: what runs now; else it may be as old as a description is kept.
        """
        client = replace(client, account=client.account.limit_retries(RETRY_TIME))
        clock = client.account.clock
        known = self._seen.get((application_id, target))
        if known is None:
            known = self._seen[application_id, target] = Reread(
                first=FIRST_PAUSE if definitions.service is None else LONGEST_PAUSE,
                longest=LONGEST_PAUSE,
            )
        if definitions.service is None:
            read = partial(look_at_tasks, client, definitions, application_id)
            key = (client.cluster, definitions.commit)
            return await known.get(key, read, clock=clock, is_fresh=is_fresh)
        place = (client.account.clients, client.cluster)
        descriptions = self._clusters.setdefault(place, ServiceDescriptions())
        service = await descriptions.find(client, definitions.service_name, is_fresh=is_fresh)
        if service is None:
            return Seen(service=None)
        digest = hashlib.blake2b(repr(service.body).encode(), digest_size=16).digest()
        read = partial(look_at_service, client, service)
        return await known.get((place, digest), read, clock=clock, is_fresh=is_fresh)

    def forget(self, application_id: str, service: str) -> None:
        """Lets everything of an application be read anew: a stage has changed it."""
        for descriptions in self._clusters.values():
            descriptions.forget(service)
        for (each, _), known in self._seen.items():
            if each == application_id:
                known.forget()
