# SPDX-License-Identifier: Apache-2.0
"""Publishes changes to the listeners of every control plane.

What a unit of work has committed is sent by the database, see `store.postgres.notices`. What is
stored nowhere is sent from here, and again until the database has taken it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from pipecd_controlplane.store.changes import Change, Topic
from pipecd_controlplane.store.postgres.failures import describe
from pipecd_controlplane.store.postgres.notices import Notice, encode_changes, read_changes
from pipecd_controlplane.usecases.bus import Bus, Listener, Subscriber
from pipecd_controlplane.usecases.replicated.echo import Echo
from pipecd_controlplane.usecases.replicated.notifier import Notifier
from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger

log = logger(__name__)

RETRY_SECONDS: Final = 1.0
CATCH_UP_SECONDS: Final = 2.0
"""How long a read waits to hear what others have committed: it takes some milliseconds."""


class ReplicatedBus:
    """The bus of this process, connected with those of the others; implements `ChangeBus`.

    `send_pending` must run.
    """

    def __init__(
        self,
        local: Bus,
        notifier: Notifier,
        echo: Echo,
        *,
        catch_up_seconds: float = CATCH_UP_SECONDS,
    ) -> None:
        self._local = local
        self._notifier = notifier
        self._echo = echo
        self._catch_up_seconds = catch_up_seconds
        self._pending: dict[Change, None] = {}
        self._has_pending = asyncio.Event()

    def publish(self, changes: Sequence[Change]) -> None:
        self._local.publish(changes)
        self._pending.update(dict.fromkeys(changes))
        self._has_pending.set()

    def hear(self, notice: Notice) -> None:
        """Notifies listeners in this process of what another one has published."""
        self._local.publish(list(read_changes(notice)))

    async def catch_up(self) -> None:
        try:
            async with asyncio.timeout(self._catch_up_seconds):
                await self._echo.catch_up()
        except (TimeoutError, PipecdError) as error:
            # The session is lost, or deaf, which the heartbeat finds: all is read anew after that.
            log.warning("replica.behind", error=describe(error))

    def listen(self, *topics: Topic) -> AbstractContextManager[Listener]:
        return self._local.listen(*topics)

    def subscription(self, subscriber: Subscriber, *topics: Topic) -> AbstractContextManager[None]:
        return self._local.subscription(subscriber, *topics)

    def resync(self) -> None:
        """Tells every subscriber in this process that changes may have been missed."""
        self._local.resync()

    def stop(self) -> None:
        self._local.stop()

    async def send_pending(self) -> None:
        """Sends what is published here to the others, until it is cancelled."""
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            changes = list(self._pending)
            self._pending.clear()
            try:
                await self._notifier.send(encode_changes(self._notifier.replica_id, changes))
            except PipecdError as error:
                log.warning("replica.not_published", error=str(error))
                self._pending = dict.fromkeys([*changes, *self._pending])
                self._has_pending.set()
                await asyncio.sleep(RETRY_SECONDS)
