# SPDX-License-Identifier: Apache-2.0
"""The command `pipecd`: flags become settings, errors become a sentence and an exit code.

What a command needs is imported when it runs, so that `--help` and `version` answer at once.
"""

import asyncio
import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipecd_model.errors import ConfigError, PipecdError

if TYPE_CHECKING:
    from controlplane.app import ControlPlane
    from pipecd_wire.rpc import Observe

DIE_AFTER_COMMIT = "PIPECD_CHAOS_DIE_AFTER_COMMIT"
"""For tests only: the path of an RPC after whose first success the server kills itself."""
ARMED = "PIPECD_CHAOS_ARMED"
"""For tests only: a folder whose files name such RPCs, and come and go while the server runs."""


class Commands(click.Group):
    """The commands, some of which are found only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "quickstart", "backup", "restore"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "quickstart":
            from controlplane.quickstart.command import quickstart  # noqa: PLC0415

            return quickstart
        if cmd_name in {"backup", "restore"}:
            from controlplane.ops import commands  # noqa: PLC0415

            return commands.backup if cmd_name == "backup" else commands.restore
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=Commands,
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
    required=True,
    help="Where everything is kept; made when it is not there. One process owns it.",
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
@click.option("--tls-cert", type=FILE, help="Certificate chain (PEM); serves TLS.")
@click.option("--tls-key", type=FILE, help="The certificate's key (PEM).")
@click.option(
    "--project",
    metavar="NAME",
    help="The project that a new data folder gets. Default: default.",
)
@click.option(
    "--grace-period",
    type=click.FloatRange(min=0),
    default=10,
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
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def server(
    *,
    data_dir: Path,
    listen: str,
    config_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    project: str | None,
    grace_period: float,
    lease_time: float,
    take_over_after: float,
    log_level: str,
) -> None:
    """Run the control plane until it is told to stop (SIGTERM, Ctrl-C).

    The first start in an empty folder makes a project, and an API key that may do everything in it:
    the file admin.key, which only you can read.
    """
    from controlplane import app  # noqa: PLC0415
    from controlplane.http.front import FrontTls  # noqa: PLC0415
    from controlplane.usecases.leases import LeaseTimes  # noqa: PLC0415
    from pipecd_model import oplog  # noqa: PLC0415

    oplog.configure(log_level)
    host, port = _host_and_port(listen)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    if take_over_after < lease_time:
        raise click.UsageError("--take-over-after must not be less than --lease-time")
    tls = FrontTls(cert_file=tls_cert, key_file=tls_key) if tls_cert and tls_key else None
    settings = app.Settings(
        data_dir=data_dir.absolute(),
        host=host,
        port=port,
        tls=tls,
        project_id=project,
        public_url=_public_url(config_file) if config_file else "",
        grace=grace_period,
        lease_times=LeaseTimes(lease=lease_time, take_over=take_over_after),
        observers=_chaos(os.environ.get(DIE_AFTER_COMMIT, ""), os.environ.get(ARMED, "")),
    )
    asyncio.run(app.run(settings, _announce))


def _chaos(path: str, armed: str) -> "tuple[Observe, ...]":
    if not path and not armed:
        return ()
    from controlplane.ops.chaos import die_after_commit, die_when_armed  # noqa: PLC0415

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
    sys.stdout.flush()


def _host_and_port(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen wants HOST:PORT, not {listen!r}, e.g. 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _public_url(path: Path) -> str:
    """What of the file counts so far; what does not is refused or said, never silently ignored."""
    from pipecd_model.config import load_control_plane  # noqa: PLC0415

    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    loaded = load_control_plane(text, file=str(path))
    config = loaded.config
    for part, chosen, served in (
        ("datastore", config.datastore.type, "SQLITE"),
        ("filestore", config.filestore.type, "FOLDER"),
    ):
        if chosen != served:
            raise ConfigError(
                f"{path}: spec.{part}.type: {chosen} is not served yet",
                hint=f"leave it out: {served} in the data folder is the default",
            )
    ignored = [
        name
        for name, value in (
            ("spec.projects", config.projects),
            ("spec.sharedSSOConfigs", config.shared_sso_configs),
        )
        if value
    ]
    for warning in [*map(str, loaded.warnings), *(f"{name} is not used yet" for name in ignored)]:
        click.echo(f"warning: {warning}", err=True)
    return config.address


def main() -> None:
    """Run pipecd."""
    try:
        cli.main(prog_name="pipecd", standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except PipecdError as failed:
        click.echo(f"error: {failed}" + (f" ({failed.hint})" if failed.hint else ""), err=True)
        sys.exit(failed.exit_code)
