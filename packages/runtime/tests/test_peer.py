# SPDX-License-Identifier: Apache-2.0
"""Whose socket is at the other end, by real connections."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from pipecd_runtime.peer import PeerError, check_listeners, check_peer, has_ipv6

NOBODY = 65534
ME = os.geteuid()
OTHER = ME + 1
WITH_IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
LOOPBACKS = ["127.0.0.1", pytest.param("::1", marks=WITH_IPV6)]
AS_ROOT = pytest.mark.skipif(ME != 0, reason="only root can become another user")


def listen(host: str, port: int = 0) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


@pytest.fixture(params=LOOPBACKS)
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    with closing(listen(request.param)) as made:
        yield made


def port_of(end: socket.socket) -> int:
    port: int = end.getsockname()[1]
    return port


def connect(server: socket.socket) -> socket.socket:
    return socket.create_connection(server.getsockname()[:2])


def caller_of(end: socket.socket) -> tuple[str, int]:
    host, port = end.getsockname()[:2]
    return host, port


def test_a_caller_of_the_expected_user_is_taken(server: socket.socket) -> None:
    with connect(server) as caller:
        check_peer(*caller_of(caller), server_ports=[1, port_of(server)], uid=ME)


def test_a_caller_of_another_user_is_named(server: socket.socket) -> None:
    refused = pytest.raises(PeerError, match=f"the user {ME} of this machine, not {OTHER}")
    with connect(server) as caller, refused:
        check_peer(*caller_of(caller), server_ports=[port_of(server)], uid=OTHER)


@WITH_IPV6
def test_a_caller_through_a_socket_of_both_families_is_found() -> None:
    """gRPC makes such ones, and calls 127.0.0.1 through them."""
    with closing(listen("127.0.0.1")) as server, socket.socket(socket.AF_INET6) as caller:
        caller.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        caller.connect(("::ffff:127.0.0.1", port_of(server)))

        for host in ("127.0.0.1", "::ffff:127.0.0.1"):
            check_peer(host, port_of(caller), server_ports=[port_of(server)], uid=ME)
            with pytest.raises(PeerError, match="not"):
                check_peer(host, port_of(caller), server_ports=[port_of(server)], uid=OTHER)


@pytest.mark.parametrize("end", ["accepted", "waiting"])
def test_a_caller_that_has_hung_up_is_nobody(server: socket.socket, end: str) -> None:
    """Its socket lives on without a process, and the kernel says that it is root's."""
    caller = connect(server)
    asked = caller_of(caller)
    with ExitStack() as opened:
        if end == "accepted":
            opened.enter_context(server.accept()[0])
        caller.sendall(b"a call")
        caller.close()

        for uid in {0, ME}:
            with pytest.raises(PeerError, match=r"has hung up|no process"):
                check_peer(*asked, server_ports=[port_of(server)], uid=uid)


def test_a_caller_of_another_server_is_not_found(server: socket.socket) -> None:
    refused = pytest.raises(PeerError, match="no process of this machine")
    with connect(server) as caller, closing(listen("127.0.0.1")) as other, refused:
        check_peer(*caller_of(caller), server_ports=[port_of(other)], uid=ME)


def test_a_caller_of_another_machine_is_not_found() -> None:
    for host in ("192.0.2.7", "2001:db8::7", "fe80::1%eth0"):
        with pytest.raises(PeerError, match="no process of this machine"):
            check_peer(host, 40_000, server_ports=[80], uid=ME)


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(PeerError, match="no address of this machine"):
        check_peer("unix", 0, server_ports=[80], uid=ME)


def test_own_listeners_are_taken(server: socket.socket) -> None:
    check_listeners(("127.0.0.1", "::1"), port_of(server), uid=ME)

    with pytest.raises(PeerError, match=f"served by the user {ME} of this machine, not by {OTHER}"):
        check_listeners(("127.0.0.1", "::1"), port_of(server), uid=OTHER)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", pytest.param("::", marks=WITH_IPV6)],  # noqa: S104 - what a Go plugin does
)
def test_a_listener_on_all_addresses_is_seen(address: str) -> None:
    with closing(listen(address)) as server, pytest.raises(PeerError, match="served by the user"):
        check_listeners(("127.0.0.1", "::1"), port_of(server), uid=OTHER)


def test_a_connection_is_no_listener(server: socket.socket) -> None:
    with connect(server) as caller:
        check_listeners(("127.0.0.1", "::1"), port_of(caller), uid=OTHER)


CALLER = """
import encodings.idna, os, socket, sys
host, port, uid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.setresuid(uid, uid, uid)
with socket.create_connection((host, port)) as connection:
    print(connection.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@AS_ROOT
def test_another_user_is_told_by_the_kernel(server: socket.socket) -> None:
    host, port = server.getsockname()[:2]
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, host, str(port), str(NOBODY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        caller = int(process.stdout.readline())

        with pytest.raises(PeerError, match=f"the user {NOBODY} of this machine, not 0"):
            check_peer(host, caller, server_ports=[port], uid=0)
        check_peer(host, caller, server_ports=[port], uid=NOBODY)
        process.communicate()


SHARER = """
import encodings.idna, os, socket, sys
server, there, here, uid = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.setresuid(uid, uid, uid)
end = socket.socket()
end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
end.bind(("127.0.0.1", here))
end.connect((there, server))
print("connected", flush=True)
sys.stdin.read()
"""


@AS_ROOT
def test_a_port_that_two_users_share_is_nobodys() -> None:
    """One that leads to another address of ours must not stand for one that leads here."""
    with closing(listen("0.0.0.0")) as server, socket.socket() as mine:  # noqa: S104
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        mine.bind(("127.0.0.1", 0))
        mine.connect(("127.0.0.1", port_of(server)))
        arguments = [str(port_of(server)), "127.0.0.2", str(port_of(mine)), str(NOBODY)]
        with subprocess.Popen(
            [sys.executable, "-c", SHARER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"

            with pytest.raises(PeerError, match=f"the user {NOBODY}"):
                check_peer(*caller_of(mine), server_ports=[port_of(server)], uid=0)
            process.communicate()


JUDGE = """
import os, socket
from pipecd_runtime.peer import PeerError, check_peer
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
caller = socket.create_connection(("127.0.0.1", port))
try:
    check_peer(*caller.getsockname(), server_ports=[port], uid=os.geteuid())
    print("taken")
except PeerError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("uid", "answer"),
    [("0", "taken"), (str(NOBODY), f"the user {NOBODY} stands for every user outside")],
)
def test_in_a_user_namespace_the_user_of_all_strangers_is_not_trusted(
    uid: str, answer: str
) -> None:
    """Everybody whom the namespace does not know has the same number there."""
    apart = ["unshare", "--user", f"--map-user={uid}"]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine makes no user namespaces")

    done = subprocess.run(
        [*apart, sys.executable, "-c", JUDGE], check=True, capture_output=True, text=True
    )

    assert done.stdout.startswith(answer)
