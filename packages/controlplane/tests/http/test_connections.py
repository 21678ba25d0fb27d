# SPDX-License-Identifier: Apache-2.0
"""Who has to go when there are too many."""

from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.http.addresses import TrustedProxies
from pipecd_controlplane.http.connections import GRPC_DESCRIPTORS, ClientConnection, Connections
from pipecd_controlplane.http.descriptors import highest_descriptor, room_for_connections
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.errors import ConfigError


class Room:
    """Connections, and the order in which they were told to go."""

    def __init__(self, descriptors: int = 1000, proxies: tuple[str, ...] = (), **limits: Any):
        self.connections = Connections(
            FrontLimitsConfig(**limits), descriptors, TrustedProxies(proxies)
        )
        self.gone: list[str] = []

    def enter(self, name: str, address: str = "10.0.0.1") -> ClientConnection | None:
        def abort() -> None:
            self.gone.append(name)
            if connection is not None:
                connection.leave()

        connection = self.connections.admit(address, abort)
        return connection

    def fill(self, *names: str, address: str = "10.0.0.1") -> list[ClientConnection]:
        entered = [self.enter(name, address) for name in names]
        assert None not in entered
        return [each for each in entered if each is not None]


async def test_the_oldest_stranger_of_an_address_goes_first() -> None:
    room = Room(max_strangers_per_address=2)

    room.fill("a", "b", "c", "d")

    assert room.gone == ["a", "b"]


async def test_who_is_known_does_not_go() -> None:
    room = Room(max_strangers_per_address=2)

    first, _ = room.fill("a", "b")
    first.identify()
    room.fill("c", "d")

    assert room.gone == ["b"]


async def test_an_address_full_of_known_callers_takes_no_more() -> None:
    room = Room(max_connections_per_address=2, max_strangers_per_address=2)

    for each in room.fill("a", "b"):
        each.identify()

    assert room.enter("c") is None
    assert room.enter("d", "10.0.0.2") is not None
    assert room.gone == []


async def test_networks_of_ipv6_count_as_one_address() -> None:
    room = Room(max_strangers_per_address=1)

    room.fill("a", address="2001:db8::1")
    room.fill("b", address="2001:db8::ffff:2")
    room.fill("c", address="2001:db8:0:1::1")

    assert room.gone == ["a"]


async def test_an_ipv4_address_is_the_same_however_it_is_written() -> None:
    room = Room(max_strangers_per_address=1)

    room.fill("a", address="10.0.0.1")
    room.fill("b", address="::ffff:10.0.0.1")

    assert room.gone == ["a"]


async def test_of_all_strangers_one_of_the_largest_group_goes() -> None:
    room = Room(max_stranger_connections=3, max_strangers_per_address=3)

    room.fill("a", address="10.0.0.1")
    room.fill("b", "c", address="10.0.0.2")
    room.fill("d", address="10.0.0.3")

    assert room.gone == ["b"]


async def test_strangers_have_half_of_the_descriptors() -> None:
    room = Room(descriptors=20)

    entered = room.fill(*"abc")
    for each in entered:
        assert each.grow(GRPC_DESCRIPTORS)
    room.fill("d")
    room.fill("e")

    assert room.gone == ["a"]


async def test_known_callers_may_have_all_descriptors_and_no_more() -> None:
    room = Room(descriptors=9)

    for name in "abc":
        [entered] = room.fill(name)
        entered.identify()
        assert entered.grow(GRPC_DESCRIPTORS)

    assert room.enter("d") is None


async def test_a_stranger_goes_for_the_descriptors_of_a_known_caller() -> None:
    room = Room(descriptors=4)

    [known] = room.fill("a")
    known.identify()
    room.fill("b", "c")
    assert known.grow(GRPC_DESCRIPTORS)

    assert room.gone == ["b"]


async def test_trusted_proxies_have_no_limit_per_address() -> None:
    room = Room(
        proxies=("10.0.0.0/24",), max_strangers_per_address=1, max_connections_per_address=1
    )

    room.fill("a", "b", "c")

    assert room.gone == []


async def test_a_connection_counts_where_its_balancer_says_and_nowhere_else() -> None:
    room = Room(proxies=("10.0.0.1",), max_strangers_per_address=2, max_connections_per_address=2)
    entered = room.fill("a", "b", "c", "d")

    for connection, address in zip(entered, ["10.9.9.9", "10.9.9.9", "::1", None], strict=True):
        assert connection.readdress(address)
    assert [each.peer for each in entered] == ["10.9.9.9", "10.9.9.9", "::1", "10.0.0.1"]
    room.fill("e", address="10.9.9.9")
    assert room.gone == ["a"]

    for connection in entered:
        connection.leave()
    assert len(room.connections) == room.connections.strangers == 1


async def test_a_balancers_client_has_no_room_where_all_are_known() -> None:
    room = Room(proxies=("10.0.0.1",), max_strangers_per_address=1, max_connections_per_address=1)
    first, second = room.fill("a", "b")
    assert first.readdress("10.9.9.9")
    first.identify()

    assert not second.readdress("10.9.9.9")
    assert not room.gone


async def test_bytes_of_strangers_are_counted_until_they_are_known_or_gone() -> None:
    room = Room(max_stranger_bytes=64 * 1024)
    a, b, c = room.fill("a", "b", "c")

    a.hold(40_000)
    b.hold(20_000)
    assert room.connections.held_bytes == 60_000
    b.identify()
    c.hold(20_000)
    assert room.gone == []
    c.hold(30_000)

    assert room.gone == ["a"]
    assert room.connections.held_bytes == 30_000


async def test_the_address_that_holds_most_bytes_pays_for_them() -> None:
    room = Room(max_stranger_bytes=65_536, max_form_bytes=65_536)
    (first,) = room.fill("first", address="10.0.0.1")
    other, more = room.fill("other", "more", address="10.0.0.2")
    first.hold(20_000)
    other.hold(30_000)

    more.hold(30_000)

    assert room.gone == ["other"]
    assert room.connections.held_bytes == 50_000


async def test_everything_is_as_before_when_all_are_gone() -> None:
    room = Room(max_strangers_per_address=3)
    entered = room.fill(*"abcdefgh")
    entered[-1].identify()
    entered[-2].hold(100)
    for each in entered:
        each.leave()
        each.leave()

    assert len(room.connections) == 0
    assert room.connections.strangers == 0
    assert room.connections.held_bytes == 0
    assert not room.connections._of_key
    assert not room.connections._strangers_of_key
    assert room.connections._used == room.connections._used_by_strangers == 0


def test_too_few_descriptors_are_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="descriptors are too few beside") as refused:
        highest_descriptor(2_000_000_000)

    assert "ulimit -n" in (refused.value.hint or "")


def test_a_number_of_connections_that_cannot_be_had_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    open_now = sum(1 for _ in Path("/dev/fd").iterdir())

    room = room_for_connections(FrontLimitsConfig(max_connections=9_000), open_now + 300)

    assert 295 <= room <= 305
    [record] = caplog.records
    assert "maxConnections 9000 has no effect" in record.fields["message"]  # type: ignore[attr-defined]
