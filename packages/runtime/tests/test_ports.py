# SPDX-License-Identifier: Apache-2.0
"""Free ports for programs that are told which port to serve on."""

import socket
from pathlib import Path

import pytest

from pipecd_runtime.ports import is_free, pick_port


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])  # noqa: S104
def test_a_port_on_which_somebody_listens_is_not_free(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        assert not is_free(port)


def test_a_port_is_free_though_a_connection_to_it_lingers() -> None:
    with socket.create_server(("127.0.0.1", pick_port())) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()

    assert is_free(port)


def test_a_picked_port_is_not_one_that_connections_get() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    lowest, highest = map(int, given.split())

    assert pick_port() not in range(lowest, highest + 1)
