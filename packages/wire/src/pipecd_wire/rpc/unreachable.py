# SPDX-License-Identifier: Apache-2.0
"""Says in plain words why a server cannot be reached: gRPC's own texts are for its developers.

Our programs share the flags that the hints name: `--insecure` and `--cert-file`.
"""

import re
from typing import Final, NamedTuple

from pipecd_wire.rpc.status import CallError

LONGEST_CAUSE: Final = 300
"""Characters of a text that is not known here, and that the peer may have written."""

GENERAL: Final = 1
TELLING: Final = 2
"""Weights: a name with two addresses often fails on one for a reason that says nothing."""


class ConnectionTrouble(NamedTuple):
    """Why a server cannot be reached, what to do about it, and how much the cause tells."""

    cause: str
    hint: str = ""
    weight: int = GENERAL
    is_answer: bool = False
    """Whether the server was reached, and says this itself."""


class _KnownText(NamedTuple):
    """A text of gRPC, for calls with (True) or without TLS or both (None), and what it means."""

    text: str
    """A regular expression; compiled when it is needed, which in most processes is never."""
    cause: str
    hint: str
    tls: bool | None = None
    weight: int = TELLING


def _describe(
    text: str, cause: str, hint: str, *, tls: bool | None = None, weight: int = TELLING
) -> _KnownText:
    return _KnownText(text=text, cause=cause, hint=hint, tls=tls, weight=weight)


_BREAKS: Final = "Socket closed|Connection reset|Endpoint closing|Broken pipe|GOAWAY"

_OWN_WORDS: Final = "failed to connect|to all|address list|keepalive|transport|stream removed"
"""Of what gRPC says itself. Anything else is from the server, also from one of another make."""

_KNOWN: Final = (
    _describe(
        r"Hostname Verification Check failed",
        "its certificate is for another name",
        "use a name that stands in the certificate",
    ),
    _describe(
        r"CERTIFICATE_VERIFY_FAILED: certificate has expired",
        "its certificate has expired",
        "renew the certificate of the server",
    ),
    _describe(
        r"CERTIFICATE_VERIFY_FAILED: certificate is not yet valid",
        "its certificate is not valid yet",
        "check the clock of this machine, and the certificate of the server",
    ),
    _describe(
        r"CERTIFICATE_VERIFY_FAILED(?:: (?P<why>[^:]*))?",
        "its certificate is not trusted ({why})",
        "give the certificate of its CA with --cert-file or SSL_CERT_FILE",
    ),
    _describe(
        r"missing selected ALPN",
        "it speaks TLS there, but not gRPC",
        "check the port, and that a proxy before it passes HTTP/2 on",
    ),
    _describe(
        r"Failed to create security handshaker",
        "the certificates to trust cannot be used",
        "--cert-file must be certificates in PEM",
    ),
    _describe(
        r"WRONG_VERSION_NUMBER|handshake (read )?failed|SSL_ERROR|HTTP_REQUEST",
        "it does not speak TLS there",
        "check the port; if the server is without TLS, use --insecure",
        tls=True,
    ),
    _describe(
        rf"failed to connect.*({_BREAKS}|SETTINGS frame)",
        "it ends or ignores a connection without TLS",
        "check the port; if the server has TLS, leave out --insecure",
        tls=False,
        weight=GENERAL,
    ),
    _describe(
        _BREAKS,
        "the connection to it broke",
        "",
        weight=GENERAL,
    ),
    _describe(
        r"http2 header with status: (?P<why>\d+)",
        "a web server or proxy answers there, with HTTP status {why}",
        "check the port, and that what is between passes gRPC on",
    ),
    _describe(
        r"Misformatted domain name",
        "the address is not HOST:PORT",
        "write it without a scheme and without a path",
    ),
    _describe(
        r"Domain name not found|lookup failed|errors resolving|DNS resolution|NXDOMAIN|ENOTFOUND",
        "the name of the host cannot be resolved",
        "check the name, and the name server of this machine",
    ),
    _describe(
        r"Connection refused",
        "nothing listens there (connection refused)",
        "check host and port, and that the server runs",
        weight=GENERAL,
    ),
    _describe(
        r"No such file or directory",
        "the socket is not there",
        "check the path, and that the server runs",
        weight=GENERAL,
    ),
    _describe(
        r"unreachable|No route to host",
        "there is no network route to it",
        "check the address, and the network between",
        weight=GENERAL,
    ),
    _describe(
        r"timed out|not reachable within",
        "it does not answer in time",
        "check host and port, and the firewalls between",
        weight=GENERAL,
    ),
)


def explain_unreachable(error: CallError, *, tls: bool) -> ConnectionTrouble | None:
    """Returns why a call did not get through; None when the peer has carried it out or refused it.

    A peer that refuses the caller's credentials was reached. `tls`: whether the call used TLS.
    """
    if error.status == "DEADLINE_EXCEEDED":
        return ConnectionTrouble(
            cause="it takes connections and does not answer in time",
            hint="check that the server is well, and what stands between",
        )
    if error.status != "UNAVAILABLE" and "http2 header with status" not in error.message:
        return None
    said = error.message[:LONGEST_CAUSE]
    if error.is_answer:  # whatever it tells of: a third one may have refused a connection
        return ConnectionTrouble(cause=said or "no reason given", is_answer=True)
    for known in _KNOWN:
        found = re.search(known.text, error.message, re.IGNORECASE)
        if found is not None and known.tls in (None, tls):
            why = (found.groupdict().get("why") or "").strip()
            cause = known.cause.format(why=why or "no reason given")
            return ConnectionTrouble(cause=cause, hint=known.hint, weight=known.weight)
    is_answer = bool(said) and re.search(_OWN_WORDS, said, re.IGNORECASE) is None
    return ConnectionTrouble(cause=said or "no reason given", is_answer=is_answer)
