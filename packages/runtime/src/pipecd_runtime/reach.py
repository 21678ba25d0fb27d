# SPDX-License-Identifier: Apache-2.0
"""Checks the way to a server, step by step: its name, its port, its certificate, its clock.

What fails first is what is wrong; the steps after it are not tried. Our programs share the flags
that the rows name: `--insecure` and `--cert-file`.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from pipecd_runtime.checkup import CheckRow, fail, has_failed, ok, warn

STEP_SECONDS: Final = 5.0
"""Seconds that each step may take."""

DAYS_LEFT_WARNING: Final = 14
"""Days before its end at which a certificate is worth a warning."""

SKEW_WARNING_SECONDS: Final = 30.0
SKEW_FAILURE_SECONDS: Final = 300.0
"""Seconds by which two clocks may differ: sign-in with other parties allows no more."""

_MOST_HEAD: Final = 16 * 1024
_DAY_SECONDS: Final = 24 * 3600
_NO_ISSUER: Final = frozenset({18, 19, 20, 21})  # OpenSSL: self-signed, or signed by a stranger
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset({62, 64})

_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")

_Addresses = list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server listens."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


def parse_address(text: str) -> ServerAddress | None:
    """Returns the host and port of `HOST:PORT`; None for anything else."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_good = host and colon and "/" not in text and port.isascii() and port.isdigit()
    return ServerAddress(host=host, port=int(port)) if is_good and 0 < int(port) < 65536 else None


async def check_reach(
    address: str,
    *,
    tls: bool,
    roots: bytes | None = None,
    clock: Callable[[], float] = time.time,
) -> list[CheckRow]:
    """Returns the rows for a server; `roots` are certificates to trust instead of the system's."""
    place = parse_address(address)
    if place is None:
        text = f"{address!r} is not HOST:PORT"
        return [fail("address", text, "write it without a scheme and a path, e.g. localhost:8080")]
    if proxy := _find_proxy(place):
        return [ok("proxy", f"{place.host} is reached through {proxy}; the way is not checked")]
    rows = [await _check_name(place)]
    if has_failed(rows):
        return rows
    rows.append(await _check_port(place))
    if has_failed(rows):
        return rows
    rows += await (_check_tls(place, roots, clock) if tls else _check_plain(place))
    if not has_failed(rows):
        rows += await _check_clock(place, _make_context(roots) if tls else None, clock)
    return rows


def _find_proxy(place: ServerAddress) -> str:
    """Returns the proxy that gRPC uses for a server, without credentials; empty for none."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - slow to import, like the next
    from urllib.request import proxy_bypass  # noqa: PLC0415

    found = next((os.environ[name] for name in _PROXIES if os.environ.get(name)), "")
    if not found or place.is_local or proxy_bypass(place.host):
        return ""
    parts = urlsplit(found)
    return parts.netloc.rpartition("@")[2] or found


async def _check_name(place: ServerAddress) -> CheckRow:
    try:
        found = await _resolve(place)
    except TimeoutError:
        text = f"{place.host} is not resolved within {STEP_SECONDS:g}s"
        return fail("name", text, "check the name server of this machine (/etc/resolv.conf)")
    except OSError as error:
        text = f"{place.host!r} cannot be resolved: {error.strerror or error}"
        return fail("name", text, "check the host in --address, and this machine's name server")
    return ok("name", f"{place.host} is {', '.join(found)}")


async def _resolve(place: ServerAddress) -> _Addresses:
    async with asyncio.timeout(STEP_SECONDS):
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                place.host, place.port, type=socket.SOCK_STREAM
            )
        except UnicodeError:
            raise OSError("not a name") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def _check_port(place: ServerAddress) -> CheckRow:
    silent: dict[str, str] = {}
    answering: _Addresses = []
    for address in await _resolve(place):
        try:
            async with asyncio.timeout(STEP_SECONDS):
                _, writer = await asyncio.open_connection(address, place.port)
            writer.close()
            answering.append(address)
        except TimeoutError:
            silent[address] = f"no answer within {STEP_SECONDS:g}s"
        except OSError as error:
            silent[address] = os.strerror(error.errno).lower() if error.errno else str(error)
    told = "; ".join(f"{address}: {why}" for address, why in silent.items())
    if not answering:
        text = f"nothing answers on port {place.port} ({told})"
        return fail("port", text, "check the port, that the server runs, and firewalls between")
    if silent and not place.is_local:
        text = f"{', '.join(answering)} answers on port {place.port}, but not all do ({told})"
        return warn("port", text, "remove the dead address from the name server")
    return ok("port", f"{', '.join(answering)} answers on port {place.port}")


async def _check_plain(place: ServerAddress) -> list[CheckRow]:
    """A server with TLS ends a connection without it, and says nothing."""
    if await _speaks_tls(place):
        text = "the server speaks TLS, and this side was told not to"
        return [fail("tls", text, "leave out --insecure (and unset PIPECTL_INSECURE)")]
    if place.is_local:
        return [ok("tls", "not used, on this machine")]
    text = "not used: keys and secrets are readable on the way"
    return [warn("tls", text, "give the server a certificate, and leave out --insecure")]


async def _speaks_tls(place: ServerAddress) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: it is only asked whether this is TLS
    try:
        await _shake_hands(place, context)
    except (OSError, TimeoutError):
        return False
    return True


async def _check_tls(
    place: ServerAddress, roots: bytes | None, clock: Callable[[], float]
) -> list[CheckRow]:
    try:
        context = _make_context(roots)
    except (ssl.SSLError, ValueError):
        text = "the certificates to trust cannot be read"
        return [fail("certificate", text, "--cert-file must be certificates in PEM")]
    try:
        shaken = await _shake_hands(place, context)
    except ssl.SSLCertVerificationError as error:
        return [await _explain_refusal(place, roots, error)]
    except TimeoutError:
        text = f"the server does not answer TLS within {STEP_SECONDS:g}s"
        return [fail("tls", text, "check the port; a server without TLS needs --insecure")]
    except OSError as error:
        why = getattr(error, "reason", "") or error.strerror or str(error) or "the connection ended"
        text = f"the server does not speak TLS there ({why})"
        return [fail("tls", text, "check the port; a server without TLS needs --insecure")]
    rows = [_check_certificate(shaken, clock)]
    if shaken.protocol != "h2":
        text = "what answers does not offer HTTP/2, which gRPC needs"
        rows.append(fail("tls", text, "let the proxy in between pass HTTP/2 on"))
    return rows


async def _explain_refusal(
    place: ServerAddress, roots: bytes | None, error: ssl.SSLCertVerificationError
) -> CheckRow:
    if error.verify_code in _NO_ISSUER:
        text = f"the certificate is not trusted: {error.verify_message}"
        return fail("certificate", text, "give the certificate of its CA with --cert-file")
    if error.verify_code == _EXPIRED:
        return fail("certificate", "the certificate has expired", "renew it on the server")
    if error.verify_code in _OTHER_NAME:
        context = _make_context(roots)
        context.check_hostname = False  # its chain is verified; its names are only shown
        names = ""
        try:
            names = ", ".join((await _shake_hands(place, context)).names)
        except (OSError, TimeoutError):
            names = "others"
        text = f"the certificate is not for {place.host!r} but for {names or 'no name'}"
        return fail("certificate", text, "use a name that stands in it as --address")
    text = f"the certificate is refused: {error.verify_message}"
    return fail("certificate", text, "check the certificate on the server, and both clocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handshake:
    """What a server showed."""

    names: _Addresses
    issuer: str
    ends_at: float
    protocol: str | None


def _check_certificate(shaken: _Handshake, clock: Callable[[], float]) -> CheckRow:
    days = (shaken.ends_at - clock()) / _DAY_SECONDS
    end = time.strftime("%Y-%m-%d", time.gmtime(shaken.ends_at))
    text = f"for {', '.join(shaken.names)}, from {shaken.issuer}, until {end}"
    if days < DAYS_LEFT_WARNING:
        return warn("certificate", f"{text}: {max(0, int(days))} days left", "renew it soon")
    return ok("certificate", text)


def _make_context(roots: bytes | None) -> ssl.SSLContext:
    cadata = None if roots is None else roots.decode("ascii", errors="replace")
    context = ssl.create_default_context(cadata=cadata)
    context.set_alpn_protocols(["h2"])  # as gRPC does
    return context


async def _shake_hands(place: ServerAddress, context: ssl.SSLContext) -> _Handshake:
    async with asyncio.timeout(STEP_SECONDS):
        _, writer = await asyncio.open_connection(
            place.host, place.port, ssl=context, server_hostname=place.host
        )
    try:
        connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
        shown = connection.getpeercert() or {}
        return _Handshake(
            names=[str(each[1]) for each in shown.get("subjectAltName", ()) if len(each) > 1],
            issuer=_find_issuer(shown.get("issuer", ())),
            ends_at=ssl.cert_time_to_seconds(str(shown["notAfter"])) if shown else 0.0,
            protocol=connection.selected_alpn_protocol(),
        )
    finally:
        writer.close()


def _find_issuer(parts: object) -> str:
    pairs = [pair for part in parts for pair in part] if isinstance(parts, tuple) else []
    known = {str(pair[0]): str(pair[1]) for pair in pairs}
    return known.get("commonName") or known.get("organizationName") or "an unnamed CA"


async def _check_clock(
    place: ServerAddress, context: ssl.SSLContext | None, clock: Callable[[], float]
) -> list[CheckRow]:
    """Compares this clock with the server's; no row when the server does not tell the time."""
    if context is not None:
        context.set_alpn_protocols(["http/1.1"])
    try:
        there = await _ask_time(place, context)
    except (OSError, TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        return []
    if there is None:
        return []
    skew = clock() - there
    if abs(skew) <= SKEW_WARNING_SECONDS:
        return [ok("clock", "this machine's and the server's agree")]
    text = f"this machine is {abs(skew):.0f}s {'ahead of' if skew > 0 else 'behind'} the server"
    step = "set both clocks with NTP (timedatectl status)"
    make = fail if abs(skew) > SKEW_FAILURE_SECONDS else warn
    return [make("clock", text, step)]


async def _ask_time(place: ServerAddress, context: ssl.SSLContext | None) -> float | None:
    name = place.host if context is not None else None
    async with asyncio.timeout(STEP_SECONDS):
        reader, writer = await asyncio.open_connection(
            place.host, place.port, ssl=context, server_hostname=name, limit=_MOST_HEAD
        )
        try:
            host = f"[{place.host}]" if ":" in place.host else place.host
            writer.write(
                f"GET /healthz HTTP/1.1\r\nHost: {host}:{place.port}\r\n"
                "Connection: close\r\n\r\n".encode(errors="replace")
            )
            head = await reader.readuntil(b"\r\n\r\n")
        finally:
            writer.close()
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.strip().lower() == "date":
            try:
                return parsedate_to_datetime(value.strip()).timestamp()
            except ValueError:
                return None
    return None
