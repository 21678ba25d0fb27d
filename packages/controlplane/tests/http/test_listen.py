# SPDX-License-Identifier: Apache-2.0
"""Listening sockets: which addresses, and what is said when they cannot be had."""

import asyncio
import socket

import pytest

from pipecd_controlplane.http.listen import address_of, listen
from pipecd_wire.rpc import AddressError


async def test_port_zero_is_a_free_one_and_the_same_on_every_address_of_the_host() -> None:
    listeners = await listen("localhost", 0)
    try:
        ports = {listener.getsockname()[1] for listener in listeners}
    finally:
        for listener in listeners:
            listener.close()

    assert len(ports) == 1
    assert 0 not in ports


async def test_a_taken_port_is_refused_with_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            AddressError, match=f"cannot listen on '127.0.0.1:{port}': the port is taken"
        ):
            await listen("127.0.0.1", port)


async def test_an_unknown_host_is_refused_with_a_sentence() -> None:
    with pytest.raises(AddressError, match=r"unknown host 'no-such-host\.invalid'"):
        await listen("no-such-host.invalid", 0)


async def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(AddressError, match=r"cannot listen on '192\.0\.2\.1:0'"):
        await listen("192.0.2.1", 0)


async def test_no_host_is_every_address() -> None:
    listeners = await listen("", 0)
    try:
        hosts = {listener.getsockname()[0] for listener in listeners}
    finally:
        for listener in listeners:
            listener.close()

    assert "0.0.0.0" in hosts  # noqa: S104 - that is the point


def test_an_address_is_written_as_a_client_writes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert address_of(listener) == f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_an_ipv6_address_is_written_in_brackets() -> None:
    with socket.socket(socket.AF_INET6) as unbound:
        try:
            unbound.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"this machine has no IPv6: {error}")

        assert address_of(unbound) == f"[::1]:{unbound.getsockname()[1]}"


async def test_small_answers_are_not_held_back() -> None:
    """The system delays small packets by 40 ms unless told not to: every second call would wait."""
    [listener] = await listen("127.0.0.1", 0)
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(connected, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        nodelay = await asyncio.wait_for(accepted, 30)
        writer.close()
        await writer.wait_closed()

    assert nodelay != 0
