# SPDX-License-Identifier: Apache-2.0
"""Publishes committed changes at once to the listeners of their topics.

The store publishes what it has committed; watchers read the rows. A slow listener loses no change
and delays no publisher: its pending changes are stored once per entity.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from pipecd_controlplane.store.changes import Change, Topic
from pipecd_model.errors import UnavailableError


class Subscriber(Protocol):
    """A subscriber that is called at once, on the event loop, in the middle of a publication."""

    def notify(self, change: Change) -> None: ...

    def resync(self) -> None:
        """Called when changes may have been missed: what was read before may be out of date."""

    def stop(self) -> None:
        """Called when the server stops: nothing more is published."""


RESYNC_SECONDS: Final = 2.0
"""Over how long listeners are ended that may have missed changes: not all reconnect at once."""


class Listener:
    """The changes that were published and not read yet."""

    def __init__(self) -> None:
        self._pending: dict[Change, None] = {}  # a set that keeps the order
        self._news = asyncio.Event()
        self._stopping = False
        self._has_missed = False

    def notify(self, change: Change) -> None:
        self._pending[change] = None
        self._news.set()

    def resync(self) -> None:
        pause = random.uniform(0, RESYNC_SECONDS)  # noqa: S311 - spreads load only
        asyncio.get_running_loop().call_later(pause, self._end)

    def _end(self) -> None:
        self._has_missed = True
        self._news.set()

    def stop(self) -> None:
        self._stopping = True
        self._news.set()

    async def wait_changes(self, *, seconds: float | None = None) -> list[Change]:
        """Waits for changes. Returns an empty list when none arrives within `seconds`.

        Raises UnavailableError when the server stops, or changes may have been missed.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return []
        if self._stopping:
            raise UnavailableError("the control plane is stopping", hint="connect again")
        if self._has_missed:
            raise UnavailableError("changes may have been missed", hint="connect again")
        self._news.clear()
        changes = list(self._pending)
        self._pending.clear()
        return changes


class Bus:
    """Publishes the changes of the store to the subscribers in this process."""

    def __init__(self) -> None:
        self._listeners: defaultdict[Topic, set[Subscriber]] = defaultdict(set)
        self._stopping = False

    def publish(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for topic in change.topics():
                for listener in self._listeners.get(topic, ()):
                    listener.notify(change)

    async def catch_up(self) -> None:
        """Does nothing: the store publishes a change before the call of its writer returns."""

    @contextmanager
    def listen(self, *topics: Topic) -> Iterator[Listener]:
        """Yields a listener that is subscribed while the block runs.

        A change that a read inside the block does not see yet reaches the listener.
        """
        listener = Listener()
        with self.subscription(listener, *topics):
            yield listener

    @contextmanager
    def subscription(self, subscriber: Subscriber, *topics: Topic) -> Iterator[None]:
        """Notifies the subscriber while the block runs.

        `Subscriber.notify` must not add or remove subscriptions.
        """
        if self._stopping:
            subscriber.stop()
        for topic in topics:
            self._listeners[topic].add(subscriber)
        try:
            yield
        finally:
            for topic in topics:
                self._listeners[topic].discard(subscriber)
                if not self._listeners[topic]:
                    del self._listeners[topic]

    def resync(self) -> None:
        """Tells every subscriber that changes may have been missed."""
        for subscriber in {each for all_of in self._listeners.values() for each in all_of}:
            subscriber.resync()

    def stop(self) -> None:
        """Ends every watch, so that a stopping server need not wait for any."""
        self._stopping = True
        for listeners in list(self._listeners.values()):
            for listener in listeners:
                listener.stop()
