# SPDX-License-Identifier: Apache-2.0
"""piped says at once why it cannot reach the control plane, once a minute, and when it is back.

With real servers: each of these was silence once, also at the level debug.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trustme

from pipecd_model.errors import PipecdError, UnauthenticatedError
from pipecd_piped.controlplane.client import ControlPlane, connected
from pipecd_piped.controlplane.contact import MOST_LINES, REPEAT_SECONDS, Contact
from pipecd_runtime.logs import fields_of
from pipecd_runtime.ports import pick_port
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import (
    CallError,
    ClientTls,
    Endpoints,
    Metadata,
    Method,
    ServerTls,
    rpc,
    serving,
)

LIMIT = 20
PIPED_SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]
REFUSED = CallError("UNAVAILABLE", "failed to connect to all addresses; Connection refused")


class Listener:
    @rpc("ReportStat")
    async def stat(self, caller: object, request: pb.ReportStatRequest) -> pb.ReportStatResponse:
        return pb.ReportStatResponse()


async def admit(method: Method, metadata: Metadata) -> str:
    if "right-key" not in metadata["authorization"]:
        raise UnauthenticatedError("unknown key")
    return ""


def endpoints() -> Endpoints:
    served = Endpoints(admit=admit)
    others = [method.name for method in PIPED_SERVICE.methods if method.name != "ReportStat"]
    served.add(PIPED_SERVICE, Listener(), unimplemented=others)
    return served


class _Collector(logging.Handler):
    def __init__(self, written: list[logging.LogRecord]) -> None:
        super().__init__()
        self._written = written

    def emit(self, record: logging.LogRecord) -> None:
        self._written.append(record)


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    """The lines of the operator log about the contact."""
    written: list[logging.LogRecord] = []
    handler = _Collector(written)
    logger = logging.getLogger("pipecd_piped.controlplane.contact")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield written
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


def reasons(lines: list[logging.LogRecord]) -> list[str]:
    return [str(fields_of(line).get("reason", line.msg)) for line in lines]


async def ask(address: str, *, tls: ClientTls | None = None, key: str = "right-key") -> str:
    """Ask once, with the retries of a question; returns the trouble afterwards."""
    async with connected(address, project_id="p", piped_id="a", key=key, tls=tls) as control:
        try:
            await report(control)
        except PipecdError:
            assert not control.is_connected
        return control.trouble


async def report(control: ControlPlane) -> None:
    async with asyncio.timeout(LIMIT):
        await control.call(control.service.ReportStat, pb.ReportStatRequest(piped_stats=b"x"))


@asynccontextmanager
async def authority_serving(name: str = "localhost") -> AsyncIterator[tuple[int, ClientTls]]:
    """Yields the port of a server with TLS, and the roots that trust it."""
    authority = trustme.CA()
    issued = authority.issue_cert(name)
    tls = ServerTls(
        certificate=b"".join(each.bytes() for each in issued.cert_chain_pems),
        key=issued.private_key_pem.bytes(),
    )
    async with serving(endpoints(), "127.0.0.1:0", tls=tls, grace_seconds=0) as port:
        yield port, ClientTls(roots=authority.cert_pem.bytes())


async def test_a_port_where_nobody_listens(lines: list[logging.LogRecord]) -> None:
    address = f"127.0.0.1:{pick_port()}"

    trouble = await ask(address)

    assert trouble.startswith(f"{address} cannot be reached: nothing listens there")
    assert reasons(lines) == ["nothing listens there (connection refused)"]
    [line] = lines
    assert line.levelno == logging.WARNING
    assert fields_of(line)["address"] == address
    assert "check host and port" in str(fields_of(line)["hint"])


async def test_a_host_that_is_not_there(lines: list[logging.LogRecord]) -> None:
    trouble = await ask("no-such-host.invalid:443")

    assert "the name of the host cannot be resolved" in trouble
    assert len(lines) == 1


async def test_an_address_that_is_an_url(lines: list[logging.LogRecord]) -> None:
    assert "the address is not HOST:PORT" in await ask("http://localhost:1")
    assert len(lines) == 1


async def test_a_ca_that_is_not_known(lines: list[logging.LogRecord]) -> None:
    """Also by a name with two addresses, of which the other one refuses connections."""
    async with authority_serving() as (port, _):
        other = ClientTls(roots=trustme.CA().cert_pem.bytes())
        trouble = await ask(f"localhost:{port}", tls=other)

    assert "its certificate is not trusted" in trouble
    assert "--cert-file" in trouble
    assert "--insecure" not in trouble, "a private CA is no reason to talk without TLS"
    assert len(lines) == 1


async def test_a_certificate_for_another_name(lines: list[logging.LogRecord]) -> None:
    async with authority_serving("pipecd.example.com") as (port, roots):
        trouble = await ask(f"127.0.0.1:{port}", tls=roots)

    assert "its certificate is for another name" in trouble
    assert len(lines) == 1


async def test_a_file_without_certificates(lines: list[logging.LogRecord]) -> None:
    async with authority_serving() as (port, _):
        trouble = await ask(f"127.0.0.1:{port}", tls=ClientTls(roots=b"nonsense"))

    assert "--cert-file must be certificates" in trouble
    assert len(lines) == 1


async def test_tls_against_a_server_without(lines: list[logging.LogRecord]) -> None:
    roots = ClientTls(roots=trustme.CA().cert_pem.bytes())
    async with serving(endpoints(), "127.0.0.1:0", grace_seconds=0) as port:
        trouble = await ask(f"127.0.0.1:{port}", tls=roots)

    assert "it does not speak TLS there" in trouble
    assert "--insecure" in trouble
    assert len(lines) == 1


async def test_no_tls_against_a_server_with_it(lines: list[logging.LogRecord]) -> None:
    async with authority_serving() as (port, _):
        trouble = await ask(f"127.0.0.1:{port}")

    assert "without TLS" in trouble
    assert "leave out --insecure" in trouble
    assert len(lines) == 1


async def test_a_server_that_takes_connections_and_says_nothing(
    lines: list[logging.LogRecord],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        trouble = await ask(f"127.0.0.1:{mute.getsockname()[1]}")

    assert "cannot be reached: it ends or ignores a connection" in trouble
    assert len(lines) == 1


async def test_a_refused_key(lines: list[logging.LogRecord]) -> None:
    async with serving(endpoints(), "127.0.0.1:0", grace_seconds=0) as port:
        trouble = await ask(f"127.0.0.1:{port}", key="other")

    assert "it refuses this piped: unknown key" in trouble
    assert "check projectID, pipedID and the piped key" in trouble
    assert len(lines) == 1


async def test_an_answer_is_no_trouble(lines: list[logging.LogRecord]) -> None:
    async with serving(endpoints(), "127.0.0.1:0", grace_seconds=0) as port:
        assert await ask(f"127.0.0.1:{port}") == ""

    assert lines == []


async def test_a_server_that_goes_and_comes_back_is_said_once_each(
    lines: list[logging.LogRecord],
) -> None:
    async with AsyncExitStack() as opened:
        first = AsyncExitStack()
        port = await first.enter_async_context(serving(endpoints(), "127.0.0.1:0", grace_seconds=0))
        control = await opened.enter_async_context(
            connected(f"127.0.0.1:{port}", project_id="p", piped_id="a", key="right-key", tls=None)
        )
        await report(control)
        await first.aclose()
        with pytest.raises(PipecdError):
            await report(control)
        away = control.trouble
        await opened.enter_async_context(serving(endpoints(), f"127.0.0.1:{port}", grace_seconds=0))
        while control.trouble:
            async with asyncio.timeout(LIMIT):
                await control.call_until_accepted(
                    control.service.ReportStat, pb.ReportStatRequest(piped_stats=b"x")
                )

    assert "nothing listens there" in away
    assert reasons(lines)[-2:] == [
        "nothing listens there (connection refused)",
        "controlplane.back",
    ]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def contact(clock: Clock) -> Contact:
    return Contact("cp:1", tls=False, clock=clock)


def test_the_same_failure_again_is_counted_and_said_each_minute(
    contact: Contact, clock: Clock, lines: list[logging.LogRecord]
) -> None:
    for _ in range(int(2 * REPEAT_SECONDS) + 1):
        contact.on_failed(REFUSED)
        clock.now += 1

    assert [fields_of(line).get("repeated") for line in lines] == [None, 59, 59]


def test_another_cause_is_said_at_once(
    contact: Contact, clock: Clock, lines: list[logging.LogRecord]
) -> None:
    contact.on_failed(REFUSED)
    clock.now += 1
    contact.on_failed(CallError("UNAUTHENTICATED", "unknown key"))

    assert reasons(lines)[1] == "it refuses this piped: unknown key"


def test_a_cause_that_tells_less_does_not_hide_the_other(
    contact: Contact, clock: Clock, lines: list[logging.LogRecord]
) -> None:
    contact.on_failed(CallError("UNAVAILABLE", "CERTIFICATE_VERIFY_FAILED: self signed"))
    clock.now += 1
    contact.on_failed(REFUSED)

    assert "not trusted (self signed)" in contact.trouble
    assert len(lines) == 1

    clock.now += 30
    contact.on_failed(REFUSED)

    assert "connection refused" in contact.trouble, "it has been so for a while"


def test_a_connection_that_comes_and_goes_does_not_fill_the_log(
    contact: Contact, clock: Clock, lines: list[logging.LogRecord]
) -> None:
    for _ in range(1000):
        contact.on_failed(REFUSED)
        contact.on_answered()
        clock.now += 0.01

    assert len(lines) == 2 * MOST_LINES


def test_one_slow_call_among_others_says_nothing(
    contact: Contact, clock: Clock, lines: list[logging.LogRecord]
) -> None:
    slow = CallError("DEADLINE_EXCEEDED", "Deadline Exceeded")
    contact.on_answered()
    clock.now += 15
    contact.on_failed(slow)
    assert contact.trouble == ""

    clock.now += 15
    contact.on_failed(slow)

    assert "does not answer in time" in contact.trouble


@pytest.mark.parametrize("status", ["NOT_FOUND", "FAILED_PRECONDITION", "PERMISSION_DENIED"])
def test_a_refused_call_is_an_answer(
    contact: Contact, lines: list[logging.LogRecord], status: str
) -> None:
    contact.on_failed(REFUSED)
    contact.on_failed(CallError(status, "no"))

    assert contact.trouble == ""
    assert reasons(lines)[-1] == "controlplane.back"
