# SPDX-License-Identifier: Apache-2.0
"""The limits of a control plane for its callers: connections, requests, sizes and times.

A stranger is a caller that has not shown a valid credential on its connection yet.
"""

from __future__ import annotations

from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.config.schema import yaml_key as _key
from pipecd_model.config.values import Duration

LEAST_FORM = 16 * 1024
LEAST_HEAD = 4 * 1024
LEAST_RESERVE = 64


class FrontLimitsConfig(ConfigModel):
    """What callers may cost, and how long they may take.

    A stranger is whoever has not shown a valid credential on its connection yet. Strangers have
    less of everything, and give way to each other, the oldest first: none can take what known
    callers need.
    """

    max_connections: int = 10_000
    """Connections in all. Less when descriptors are short: one of HTTP takes 1, one of gRPC 3."""
    max_connections_per_address: int = 1_000
    """Connections from one address (IPv6: from one /64). Trusted proxies have no such limit; the
    clients that they name by the PROXY protocol have it."""
    max_stranger_connections: int = 1_000
    """Connections of strangers in all, and never more than half of the descriptors. When they are
    used up, one has to go: of the address that has most of them the one that came first."""
    max_strangers_per_address: int = 200
    """The same for one address (IPv6: one /64)."""
    max_admin_connections: int = 32
    """Connections to the port of `--admin-port`."""
    descriptor_reserve: int = 128
    """Descriptors that no connection gets: for the database, files and calls to others."""
    tls_handshake_timeout: Duration = Duration(seconds=10)
    """From the connection to the end of the TLS handshake."""
    header_timeout: Duration = Duration(seconds=10)
    """From the connection, or the first byte of a later request, to the end of the headers. The
    header of the PROXY protocol has as long."""
    body_timeout: Duration = Duration(minutes=2)
    """From the end of the headers to the end of the body."""
    body_idle_timeout: Duration = Duration(seconds=15)
    """How long a body of HTTP/1.1 may pause."""
    keep_alive_timeout: Duration = Duration(seconds=65)
    """How long a connection of HTTP/1.1 may wait for its next request."""
    identify_timeout: Duration = Duration(seconds=30)
    """How long a connection of gRPC may be without a call that was let in."""
    grpc_idle_timeout: Duration = Duration(minutes=30)
    """How long a connection of gRPC may be without any call. An open stream is one."""
    write_timeout: Duration = Duration(seconds=30)
    """How long a caller may take no byte of what is sent to it."""
    answer_timeout: Duration = Duration(minutes=2)
    """How long a caller of gRPC may take to accept one message."""
    max_header_bytes: int = 64 * 1024
    """Bytes of all header fields of a request."""
    max_header_fields: int = 128
    """Header fields of a request."""
    max_url_bytes: int = 64 * 1024
    """Bytes of the URL of a request."""
    max_message_bytes: int = 10 * 1024 * 1024
    """Bytes of a message of gRPC or gRPC-Web, of callers that were let in."""
    max_form_bytes: int = 64 * 1024
    """Bytes of the body of any other request, such as a sign-in form."""
    max_hook_bytes: int = 4 * 1024 * 1024
    """Bytes of the body of what a git host sends to a hook."""
    max_stranger_bytes: int = 16 * 1024 * 1024
    """Bytes of unfinished requests that are held for all strangers together."""
    max_pipelined_requests: int = 16
    """Requests that a connection of HTTP/1.1 may send before the first one is answered."""
    max_streams_per_connection: int = 100
    """Calls that are open at the same time on one connection of gRPC."""
    max_calls: int = 10_000
    """Calls of gRPC that are open at the same time, open streams included."""
    max_calls_per_caller: int = 1_000
    """The same for one piped, API key or person, over gRPC and gRPC-Web."""
    max_stranger_calls: int = 64
    """Calls of strangers that are looked at at the same time; more wait for their turn."""
    max_stranger_calls_per_connection: int = 4
    """The same for one connection."""
    max_control_frames: int = 1_000
    """Frames a second on one connection of gRPC that carry no data, such as resets of calls;
    a tenth of it for strangers."""
    log_burst: int = 20
    """Equal lines that callers from outside may cause in the log in one interval; the rest is
    counted, and told in one line at its end."""
    log_interval: Duration = Duration(seconds=10)
    """The interval of `logBurst`."""

    def check(self, report: Report) -> None:
        for name in self.__struct_fields__:
            self._check_positive(report, name)
        for smaller, larger in (
            ("max_connections_per_address", "max_connections"),
            ("max_stranger_connections", "max_connections"),
            ("max_strangers_per_address", "max_stranger_connections"),
            ("max_strangers_per_address", "max_connections_per_address"),
            ("max_stranger_calls_per_connection", "max_stranger_calls"),
            ("max_stranger_calls_per_connection", "max_streams_per_connection"),
            ("max_stranger_calls", "max_calls"),
            ("max_calls_per_caller", "max_calls"),
            ("max_form_bytes", "max_stranger_bytes"),
            ("max_hook_bytes", "max_stranger_bytes"),
            ("body_idle_timeout", "body_timeout"),
        ):
            self._check_order(report, smaller, larger)
        for name, least in (
            ("max_form_bytes", LEAST_FORM),
            ("max_hook_bytes", LEAST_FORM),
            ("max_header_bytes", LEAST_HEAD),
            ("max_url_bytes", LEAST_HEAD),
            ("max_message_bytes", self.max_form_bytes),
            ("descriptor_reserve", self.max_admin_connections + LEAST_RESERVE),
        ):
            self._check_least(report, name, least)

    def _check_positive(self, report: Report, name: str) -> None:
        value = getattr(self, name)
        if not value > type(value)():
            report.fault(_key(name), message=f"must be positive: {value}")

    def _check_order(self, report: Report, smaller: str, larger: str) -> None:
        less, more = getattr(self, smaller), getattr(self, larger)
        if less > more:
            report.fault(
                _key(smaller), message=f"{less} is more than {_key(larger)}, which is {more}"
            )

    def _check_least(self, report: Report, name: str, least: int) -> None:
        value = getattr(self, name)
        if value < least:
            hint = f"at least {least}"
            if name == "descriptor_reserve":
                hint += f": {LEAST_RESERVE}, and those of maxAdminConnections"
            report.fault(_key(name), message=f"{value} is too little", hint=hint)
