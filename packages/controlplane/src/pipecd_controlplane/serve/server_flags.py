# SPDX-License-Identifier: Apache-2.0
"""The flags of `pipecd server`, and the check that they do not contradict each other."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from pipecd_controlplane.serve.flags import LEVELS, WAIT, meaningless, switch

FILE: Final = click.Path(dir_okay=False, path_type=Path)

OPTIONS: Final = (
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where everything is kept; made when it is not there. One process owns it. Default:"
        " the folder of spec.datastore.config.path in the config file.",
    ),
    click.option(
        "--listen",
        default="127.0.0.1:8080",
        show_default=True,
        metavar="HOST:PORT",
        help="The one address for gRPC, gRPC-Web and HTTP. Port 0 is a free one; the first line"
        " printed tells which.",
    ),
    click.option("--config-file", type=FILE, help="A document of the kind ControlPlane."),
    click.option(
        "--tls-cert", "--cert-file", type=FILE, help="Certificate chain (PEM); serves TLS."
    ),
    click.option("--tls-key", "--key-file", type=FILE, help="The certificate's key (PEM)."),
    switch("tls", "Refuse to start without a certificate."),
    click.option(
        "--encryption-key-file",
        type=FILE,
        multiple=True,
        help="A key for secrets at rest, 32 bytes or more; several to change over, the new one"
        " first. Default: one that is made in the data folder.",
    ),
    switch("insecure-cookie", "Let cookies travel without TLS even where there is some."),
    click.option(
        "--static-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="A built console to serve.",
    ),
    click.option(
        "--admin-port",
        type=click.IntRange(0, 65535),
        help="Serve health and all metrics on an own port, in plain HTTP, without asking who asks.",
    ),
    click.option(
        "--admin-host", default="127.0.0.1", show_default=True, help="Where --admin-port listens."
    ),
    click.option(
        "--metrics",
        type=bool,
        is_flag=False,
        flag_value="true",
        default=True,
        show_default=True,
        help="Count, and show it at /metrics.",
    ),
    click.option(
        "--otlp-endpoint",
        default="",
        envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
        metavar="URL",
        help="Where traces of pipeds are sent on to (gRPC); without it they are dropped.",
    ),
    click.option(
        "--project",
        metavar="NAME",
        help="The project that a new data folder gets. Default: default.",
    ),
    click.option(
        "--grace-period",
        type=WAIT,
        default="10",
        show_default=True,
        metavar="SECONDS",
        help="How long running calls are waited for when the server is told to stop.",
    ),
    click.option(
        "--drain-period",
        type=WAIT,
        default="0",
        show_default=True,
        metavar="SECONDS",
        help="How long it still serves after it was told to stop, while /readyz says that it is"
        " stopping: the time that a load balancer needs to send new calls elsewhere.",
    ),
    click.option(
        "--lease-time",
        type=click.FloatRange(min=0, min_open=True),
        default=60,
        show_default=True,
        metavar="SECONDS",
        help="How long an agent that fell silent keeps others with its id from starting"
        " deployments.",
    ),
    click.option(
        "--take-over-after",
        type=click.FloatRange(min=0, min_open=True),
        default=600,
        show_default=True,
        metavar="SECONDS",
        help="How long it keeps them from the deployments that it has begun.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(list(LEVELS)),
        default="info",
        show_default=True,
    ),
    click.option(
        "--log-encoding",
        type=click.Choice(["json", "console", "humanize"]),
        help="JSON lines, or short ones for a person. Default: short ones at a terminal.",
    ),
)
"""In the order of `--help`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """What was given on the command line."""

    data_dir: Path | None
    listen: str
    config_file: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls: bool
    encryption_key_file: tuple[Path, ...]
    insecure_cookie: bool
    static_dir: Path | None
    admin_port: int | None
    admin_host: str
    metrics: bool
    otlp_endpoint: str
    project: str | None
    grace_period: timedelta
    drain_period: timedelta
    lease_time: float
    take_over_after: float
    log_level: str
    log_encoding: str | None
    ignored: dict[str, Any]
    """Flags of upstream's that mean nothing here."""

    def check(self) -> None:
        """Raises UsageError for flags that contradict each other."""
        parse_address(self.listen)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key belong together")
        if self.tls and self.tls_cert is None:
            raise click.UsageError("--tls needs --tls-cert and --tls-key")
        if self.take_over_after < self.lease_time:
            raise click.UsageError("--take-over-after must not be less than --lease-time")


def server_flags(command: Callable[[ServerFlags], None]) -> Callable[..., None]:
    """Gives a command all flags, as one argument."""
    known = {each.name for each in fields(ServerFlags)}

    @wraps(command)
    def collect(**given: Any) -> None:
        ignored = {name: given.pop(name) for name in given.keys() - known}
        command(ServerFlags(**given, ignored=ignored))

    decorated: Callable[..., None] = meaningless(collect)
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return decorated


def parse_address(listen: str) -> tuple[str, int]:
    """Returns host and port. Raises UsageError for what is no address."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen wants HOST:PORT, not {listen!r}, e.g. 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)
