# SPDX-License-Identifier: Apache-2.0
"""The command `pipecd`: flags become settings, errors become a sentence and an exit code.

What a command needs is imported when it runs, so that `--help` and `version` answer at once.
"""

import asyncio
import os
import sys
from datetime import timedelta
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipecd_controlplane.serve import flags
from pipecd_controlplane.serve.subcommands import LazyCommands
from pipecd_model.errors import explain
from pipecd_runtime.command_line import run_program

if TYPE_CHECKING:
    from pipecd_controlplane.app import ControlPlane
    from pipecd_wire.rpc import Observe

DIE_AFTER_COMMIT = "PIPECD_CHAOS_DIE_AFTER_COMMIT"
"""For tests only: the path of an RPC after whose first success the server kills itself."""
ARMED = "PIPECD_CHAOS_ARMED"
"""For tests only: a folder whose files name such RPCs, and come and go while the server runs."""


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def cli() -> None:
    """PipeCD: GitOps progressive delivery for any platform.

    `pipecd server` is the control plane: it keeps what is known about every deployment, and tells
    agents what people ask for. The agent itself is `piped`; people use `pipectl`.
    """


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"pipecd {version_of('pipecd-controlplane')}")


FILE = click.Path(dir_okay=False, path_type=Path)


@cli.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept; made when it is not there. One process owns it. Default: the"
    " folder of spec.datastore.config.path in the config file.",
)
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="The one address for gRPC, gRPC-Web and HTTP. Port 0 is a free one; the first line"
    " printed tells which.",
)
@click.option("--config-file", type=FILE, help="A document of the kind ControlPlane.")
@click.option("--tls-cert", "--cert-file", type=FILE, help="Certificate chain (PEM); serves TLS.")
@click.option("--tls-key", "--key-file", type=FILE, help="The certificate's key (PEM).")
@flags.switch("tls", "Refuse to start without a certificate.")
@click.option(
    "--encryption-key-file",
    type=FILE,
    multiple=True,
    help="A key for secrets at rest, 32 bytes or more; several to change over, the new one first."
    " Default: one that is made in the data folder.",
)
@flags.switch("insecure-cookie", "Let cookies travel without TLS even where there is some.")
@click.option(
    "--static-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="A built console to serve.",
)
@click.option(
    "--admin-port",
    type=click.IntRange(0, 65535),
    help="Serve health and all metrics on an own port, in plain HTTP, without asking who asks.",
)
@click.option(
    "--admin-host", default="127.0.0.1", show_default=True, help="Where --admin-port listens."
)
@click.option(
    "--metrics",
    type=bool,
    is_flag=False,
    flag_value="true",
    default=True,
    show_default=True,
    help="Count, and show it at /metrics.",
)
@click.option(
    "--otlp-endpoint",
    default="",
    envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    metavar="URL",
    help="Where traces of pipeds are sent on to (gRPC); without it they are dropped.",
)
@click.option(
    "--project",
    metavar="NAME",
    help="The project that a new data folder gets. Default: default.",
)
@click.option(
    "--grace-period",
    type=flags.WAIT,
    default="10",
    show_default=True,
    metavar="SECONDS",
    help="How long running calls are waited for when the server is told to stop.",
)
@click.option(
    "--lease-time",
    type=click.FloatRange(min=0, min_open=True),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How long an agent that fell silent keeps others with its id from starting deployments.",
)
@click.option(
    "--take-over-after",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="How long it keeps them from the deployments that it has begun.",
)
@click.option(
    "--log-level",
    type=click.Choice(list(flags.LEVELS)),
    default="info",
    show_default=True,
)
@click.option(
    "--log-encoding",
    type=click.Choice(["json", "console", "humanize"]),
    help="JSON lines, or short ones for a person. Default: short ones at a terminal.",
)
@flags.meaningless
def server(
    *,
    data_dir: Path | None,
    listen: str,
    config_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls: bool,
    encryption_key_file: tuple[Path, ...],
    insecure_cookie: bool,
    static_dir: Path | None,
    admin_port: int | None,
    admin_host: str,
    metrics: bool,
    otlp_endpoint: str,
    project: str | None,
    grace_period: timedelta,
    lease_time: float,
    take_over_after: float,
    log_level: str,
    log_encoding: str | None,
    **in_vain: Any,
) -> None:
    """Run the control plane until it is told to stop (SIGTERM, Ctrl-C).

    The first start in an empty folder makes a project, and two files that only you can read:
    admin.key, an API key that may read and write, and admin.password, for signing in as `admin`.
    """
    from pipecd_controlplane import app  # noqa: PLC0415
    from pipecd_controlplane.http.descriptors import raise_limit  # noqa: PLC0415
    from pipecd_controlplane.http.server import ServerTls  # noqa: PLC0415
    from pipecd_controlplane.serve import config  # noqa: PLC0415
    from pipecd_controlplane.serve.folding import fold_lines_of_callers  # noqa: PLC0415
    from pipecd_controlplane.usecases.leases import LeaseTimes  # noqa: PLC0415
    from pipecd_runtime import logs  # noqa: PLC0415

    json_lines = None if log_encoding is None else log_encoding == "json"
    logs.configure(flags.LEVELS[log_level], json_lines=json_lines)
    flags.warn_of(in_vain)
    host, port = _host_and_port(listen)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    if tls and tls_cert is None:
        raise click.UsageError("--tls needs --tls-cert and --tls-key")
    if take_over_after < lease_time:
        raise click.UsageError("--take-over-after must not be less than --lease-time")
    told = config.read(config_file)
    folder = data_dir or told.data_dir
    if folder is None:
        raise click.UsageError("--data-dir is missing: where shall everything be kept?")
    config.warn_of_limits(
        told.limits, with_tls=tls_cert is not None, with_admin_port=admin_port is not None
    )
    raise_limit()
    settings = app.Settings(
        data_dir=folder.absolute(),
        host=host,
        port=port,
        tls=ServerTls(cert_file=tls_cert, key_file=tls_key) if tls_cert and tls_key else None,
        project_id=project,
        public_url=told.public_url,
        projects=told.projects,
        shared_sso=told.shared_sso,
        state_key=told.state_key,
        retention=told.retention,
        limits=told.limits,
        trusted_proxies=told.trusted_proxies,
        folded=fold_lines_of_callers(told.limits),
        grace=grace_period.total_seconds(),
        lease_times=LeaseTimes(lease=lease_time, take_over=take_over_after),
        encryption_key_files=encryption_key_file,
        insecure_cookie=insecure_cookie,
        static_dir=static_dir,
        admin_host=admin_host,
        admin_port=admin_port,
        metrics=metrics,
        otlp_endpoint=otlp_endpoint,
        observers=_chaos(os.environ.get(DIE_AFTER_COMMIT, ""), os.environ.get(ARMED, "")),
    )
    asyncio.run(app.run(settings, _announce))


def _chaos(path: str, armed: str) -> "tuple[Observe, ...]":
    if not path and not armed:
        return ()
    from pipecd_controlplane.ops.chaos import die_after_commit, die_when_armed  # noqa: PLC0415

    if armed:
        click.echo(f"warning: {ARMED} is set: the server dies where {armed} says", err=True)
        return (die_when_armed(armed),)
    click.echo(f"warning: {DIE_AFTER_COMMIT} is set: the server dies after {path}", err=True)
    return (die_after_commit(path),)


def _announce(running: "ControlPlane") -> None:
    """Say where it is, to a person and to whatever program has started it."""
    click.echo(f"pipecd server listening on {running.address}")
    click.echo(f"data folder {running.data_dir}")
    click.echo(f"admin API key file {running.admin_key_file}")
    if running.admin_address:
        click.echo(f"metrics at http://{running.admin_address}/metrics")
    sys.stdout.flush()


def _host_and_port(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen wants HOST:PORT, not {listen!r}, e.g. 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


@cli.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def ops() -> None:
    """Nothing to run: on SQLite the server does the timed work itself."""
    click.echo("on SQLite the server runs the timed jobs itself; there is nothing to do here")


def main() -> None:
    """Run pipecd."""
    run_program(cli, explain=explain, name="pipecd")
