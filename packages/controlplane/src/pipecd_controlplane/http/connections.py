# SPDX-License-Identifier: Apache-2.0
"""All connections of a listening address, their limits, and which one is evicted at a limit.

A connection is a stranger's until a call on it was authenticated. Strangers have a share of
connections, descriptors and memory; when it is used up, the oldest stranger of the address that has
most of them is evicted. So a new caller gets the moment it needs to authenticate. `sweep` checks
deadlines once a tick: to set one costs nothing.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from typing import Final

from pipecd_controlplane.http.addresses import TrustedProxies, limit_key
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_runtime.logs import logger

log = logger(__name__)

HTTP_DESCRIPTORS: Final = 1
GRPC_DESCRIPTORS: Final = 3
"""The client's socket, and both ends of the one between proxy and gRPC server."""


PROXIES: Final = "trusted proxies"
"""The key that their connections are counted under; it has no limit per address. With the PROXY
protocol, until the header names a client."""


class ClientConnection:
    """One connection of a caller, from accept to its end."""

    __slots__ = (
        "_abort",
        "_closing_since",
        "_connections",
        "_deadline",
        "_expire",
        "_left_to_write",
        "_stalled_since",
        "accepted_at",
        "descriptors",
        "held_bytes",
        "is_known",
        "is_leaving",
        "is_proxied",
        "key",
        "peer",
        "transport",
    )

    def __init__(
        self, connections: "Connections", peer: str, key: str, abort: Callable[[], None]
    ) -> None:
        self._connections = connections
        self.peer = peer
        self.key = key
        self.transport: asyncio.Transport | None = None
        self.descriptors = HTTP_DESCRIPTORS
        self.held_bytes = 0
        self.is_known = False
        self.is_leaving = False
        self.is_proxied = False
        """Whether it came with a header of the PROXY protocol."""
        self.accepted_at = asyncio.get_running_loop().time()
        self._abort = abort
        self._deadline = math.inf
        self._expire: Callable[[], None] = abort
        self._stalled_since: float | None = None
        self._left_to_write = 0
        self._closing_since: float | None = None

    def readdress(self, named: str | None) -> bool:
        """Counts it under the address that its balancer named; returns whether there is room.

        None names nobody: it is the balancer's own, within the limits of any other address.
        """
        self.is_proxied = True
        return self._connections.readdress(self, named or self.peer)

    def attach(self, transport: asyncio.Transport) -> None:
        """Sets the transport of a connection that is open now: `abort` ends that from now on."""
        self.transport = transport
        self._abort = transport.abort

    def expect(self, deadline: float, expire: Callable[[], None]) -> None:
        """Sets the deadline: `expire` is called then, unless another is set before."""
        self._deadline = deadline
        self._expire = expire

    def relax(self) -> None:
        """Removes the deadline."""
        self._deadline = math.inf

    def identify(self) -> None:
        """Marks the connection as a known caller's: a call on it was authenticated."""
        if not self.is_known:
            self._connections.identify(self)

    def hold(self, held: int) -> None:
        """Records how many bytes of unfinished requests are held for it."""
        if held != self.held_bytes:
            self._connections.hold(self, held)

    def grow(self, descriptors: int) -> bool:
        """Returns whether it may use that many descriptors; may evict strangers for it."""
        return self._connections.grow(self, descriptors)

    def abort(self, reason: str) -> None:
        """Ends the connection at once, and logs the reason."""
        if not self.is_leaving:
            self.is_leaving = True
            log.info("front.closed", reason=reason, peer=self.peer)
            self._abort()

    def leave(self) -> None:
        """Removes the connection from all counts, once it has ended."""
        self._connections.leave(self)

    def stall(self) -> None:
        """Records that the client reads slower than we write."""
        if self.transport is not None and self._stalled_since is None:
            self._stalled_since = asyncio.get_running_loop().time()
            self._left_to_write = self.transport.get_write_buffer_size()

    def flow(self) -> None:
        """Records that the client has read what was written."""
        self._stalled_since = None

    def check(self, now: float, write_limit: float) -> None:
        """Ends the connection when its deadline has passed, or when the client does not read."""
        if now >= self._deadline:
            self._deadline = math.inf
            self._expire()
        if self.transport is None or self.is_leaving:
            return
        if self._stalled_since is not None:
            left = self.transport.get_write_buffer_size()
            if left < self._left_to_write:
                self._left_to_write, self._stalled_since = left, now
            elif now - self._stalled_since >= write_limit:
                self.abort("does not read")
        if self.transport.is_closing():
            # Closed, but what was written before is not sent yet.
            if self._closing_since is None:
                self._closing_since = now
            elif now - self._closing_since >= write_limit:
                self.abort("does not read its last bytes")


class Connections:
    """All connections of one listening address, within its limits."""

    def __init__(
        self, limits: FrontLimitsConfig, descriptors: int, proxies: TrustedProxies | None = None
    ) -> None:
        """`descriptors` is how many all connections may use together."""
        self._limits = limits
        self._descriptors = descriptors
        self._proxies = proxies or TrustedProxies()
        self._all: dict[ClientConnection, None] = {}
        self._strangers: dict[ClientConnection, None] = {}
        self._of_key: Counter[str] = Counter()
        self._strangers_of_key: dict[str, dict[ClientConnection, None]] = {}
        self._used = 0
        self._used_by_strangers = 0
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def strangers(self) -> int:
        return len(self._strangers)

    def admit(self, peer: str, abort: Callable[[], None]) -> ClientConnection | None:
        """Returns a new connection, or None when there is no room for it."""
        key = PROXIES if self._proxies.is_trusted(peer) else limit_key(peer)
        if key != PROXIES and not self._make_room_at(key):
            return None
        if not self._make_room(HTTP_DESCRIPTORS, spared=None):
            return None
        connection = ClientConnection(self, peer, key, abort)
        self._all[connection] = None
        self._strangers[connection] = None
        self._count(connection)
        self._used += HTTP_DESCRIPTORS
        self._used_by_strangers += HTTP_DESCRIPTORS
        return connection

    def readdress(self, connection: ClientConnection, peer: str) -> bool:
        key = limit_key(peer)
        if connection.is_leaving or connection not in self._all or not self._make_room_at(key):
            return False
        self._uncount(connection)
        connection.peer, connection.key = peer, key
        self._count(connection)
        return True

    def identify(self, connection: ClientConnection) -> None:
        connection.is_known = True
        if connection in self._all:
            self._forget_stranger(connection)

    def grow(self, connection: ClientConnection, descriptors: int) -> bool:
        more = descriptors - connection.descriptors
        if connection not in self._all or not self._make_room(more, spared=connection):
            return False
        connection.descriptors = descriptors
        self._used += more
        if not connection.is_known:
            self._used_by_strangers += more
        return True

    def hold(self, connection: ClientConnection, held: int) -> None:
        if connection.is_known or connection.is_leaving or connection not in self._all:
            return
        self._held_bytes += held - connection.held_bytes
        connection.held_bytes = held
        if self._held_bytes > self._limits.max_stranger_bytes:
            self._evict_holder()

    def leave(self, connection: ClientConnection) -> None:
        if self._all.pop(connection, 0) == 0:
            return
        self._used -= connection.descriptors
        self._uncount(connection)
        if not connection.is_known:
            self._forget_stranger(connection)

    def sweep(self, now: float) -> None:
        """Ends the connections whose deadline has passed or whose client does not read."""
        write_limit = self._limits.write_timeout.total_seconds()
        for connection in list(self._all):
            connection.check(now, write_limit)

    def abort(self) -> None:
        """Ends all connections at once."""
        for connection in list(self._all):
            connection.abort("the server stops")

    def _count(self, connection: ClientConnection) -> None:
        """Counts a stranger under its key."""
        self._of_key[connection.key] += 1
        self._strangers_of_key.setdefault(connection.key, {})[connection] = None

    def _uncount(self, connection: ClientConnection) -> None:
        """Removes a connection from the counts of its key."""
        self._of_key[connection.key] -= 1
        if not self._of_key[connection.key]:
            del self._of_key[connection.key]
        self._uncount_stranger(connection)

    def _uncount_stranger(self, connection: ClientConnection) -> None:
        neighbours = self._strangers_of_key.get(connection.key)
        if neighbours is not None:
            neighbours.pop(connection, None)
            if not neighbours:
                del self._strangers_of_key[connection.key]

    def _forget_stranger(self, connection: ClientConnection) -> None:
        self._held_bytes -= connection.held_bytes
        connection.held_bytes = 0
        self._used_by_strangers -= connection.descriptors
        self._strangers.pop(connection, None)
        self._uncount_stranger(connection)

    def _make_room_at(self, key: str) -> bool:
        """Makes room for one more connection of an address; returns whether there is room."""
        strangers = self._strangers_of_key.get(key, {})
        if len(strangers) >= self._limits.max_strangers_per_address:
            return self._evict(strangers, None, "too many strangers from its address")
        if self._of_key[key] >= self._limits.max_connections_per_address:
            return self._evict(strangers, None, "too many connections from its address")
        return True

    def _make_room(self, descriptors: int, *, spared: ClientConnection | None) -> bool:
        """Makes room for that many more descriptors in all; returns whether there is room."""
        one = 0 if spared is not None else 1
        by_stranger = spared is None or not spared.is_known
        if by_stranger and (
            len(self._strangers) + one > self._limits.max_stranger_connections
            or self._used_by_strangers + descriptors > self._descriptors // 2
        ):
            return self._evict(self._most_strangers(), spared, "too many strangers")
        if (
            len(self._all) + one > self._limits.max_connections
            or self._used + descriptors > self._descriptors
        ):
            return self._evict(self._most_strangers(), spared, "too many connections")
        return True

    def _evict_holder(self) -> None:
        """Evicts the oldest stranger with held bytes, of the address that has most of them."""
        held: Counter[str] = Counter()
        for each in self._strangers:
            if each.held_bytes:
                held[each.key] += each.held_bytes
        for key, _ in held.most_common(1):
            oldest = next(each for each in self._strangers_of_key[key] if each.held_bytes)
            self._held_bytes -= oldest.held_bytes
            oldest.held_bytes = 0
            oldest.abort("strangers hold too many bytes")

    def _most_strangers(self) -> dict[ClientConnection, None]:
        """Returns the strangers of the address that has most: a flood evicts only its own."""
        return max(self._strangers_of_key.values(), key=len, default={})

    def _evict(
        self,
        strangers: dict[ClientConnection, None],
        spared: ClientConnection | None,
        reason: str,
    ) -> bool:
        for oldest in strangers:
            if oldest is not spared and not oldest.is_leaving:
                oldest.abort(reason)
                return True
        return False
