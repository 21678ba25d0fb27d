# SPDX-License-Identifier: Apache-2.0
"""Ports on the loopback."""

import socket

import pytest

from pipecd_piped.programs.port import accepts, private_port
from pipecd_runtime.ports import is_free
from pipecd_wire.rpc import Endpoints, admit_all, require_own_user


async def test_the_private_port_is_on_the_loopback_only() -> None:
    """W5: upstream's plugin service, which runs scripts, listens to the whole network."""
    async with private_port(Endpoints(admit=admit_all), require_own_user) as port:
        listening = [address for address in ("127.0.0.1", "::1") if connects(address, port)]
        elsewhere = [address for address in own_addresses() if connects(address, port)]

    assert "127.0.0.1" in listening
    assert elsewhere == []
    assert not connects("127.0.0.1", port)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])  # noqa: S104
async def test_a_port_on_which_somebody_listens_is_not_free(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert await accepts(port)

    assert is_free(port)
    assert not await accepts(port)


def connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def own_addresses() -> set[str]:
    """The addresses of this machine that others see."""
    found = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    return {address for address in found if not address.startswith(("127.", "::1"))}
