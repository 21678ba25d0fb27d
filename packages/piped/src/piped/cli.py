# SPDX-License-Identifier: Apache-2.0
"""The command `piped`: reads flags and files into settings, turns errors into exit codes.

The imports of a command are made when it runs, so that `--help` and `version` stay fast.
"""

import asyncio
import base64
import binascii
import os
from datetime import timedelta
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipecd_model.config.values import Duration, format_bad_value
from pipecd_model.errors import ConfigError, explain
from pipecd_runtime.command_line import DurationParam, run_program
from pipecd_runtime.terminal import make_printable

if TYPE_CHECKING:
    from pipecd_model.config import PipedConfig
    from pipecd_wire.rpc import ClientTls

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


DURATION = DurationParam(Duration.parse, format_error=format_bad_value)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """piped, the agent of PipeCD: watches git and runs deployments, through its plugins."""


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"piped {_version()}")


@cli.command()
@click.option("--config-file", type=FILE, help="A document of the kind Piped.")
@click.option("--config-data", help="The same document as base64.")
@click.option("--insecure", is_flag=True, help="Talk to the control plane without TLS.")
@click.option("--cert-file", type=FILE, help="Certificates (PEM) to trust instead of the system's.")
@click.option(
    "--data-dir",
    type=FOLDER,
    default=lambda: Path.home() / ".piped",
    show_default="$HOME/.piped",
    help="Where mirrors, trees, plugins and tools are kept. One process owns it.",
)
@click.option("--tools-dir", type=FOLDER, show_default="tools in the data folder", help="Tools.")
@click.option(
    "--grace-period",
    type=DURATION,
    default="30s",
    show_default=True,
    help="How long running scripts are waited for when piped is told to stop.",
)
@click.option(
    "--live-state-interval",
    type=DURATION,
    default="1m",
    show_default=True,
    help="How often an application that nobody touches is compared with what was deployed.",
)
@click.option(
    "--admin-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Serve /healthz, /readyz, /metrics and /version here; 0 for none.",
)
@click.option(
    "--admin-host",
    default="127.0.0.1",
    show_default=True,
    help="Where --admin-port listens; 0.0.0.0 for probes from other machines.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--log-encoding",
    type=click.Choice(["json", "console", "humanize"]),
    show_default="json, or humanize at a terminal",
    help="How log lines look.",
)
@click.option("--plugin-service-port", type=int, hidden=True)
@click.option("--launcher-version", hidden=True)
def run(
    *,
    config_file: Path | None,
    config_data: str | None,
    insecure: bool,
    cert_file: Path | None,
    data_dir: Path,
    tools_dir: Path | None,
    grace_period: timedelta,
    live_state_interval: timedelta,
    admin_port: int,
    admin_host: str,
    log_level: str,
    log_encoding: str | None,
    plugin_service_port: int | None,
    launcher_version: str | None,
) -> None:
    """Run piped until it is told to stop (SIGTERM, Ctrl-C); told twice, it stops at once.

    Two flags of other implementations are taken and do nothing: --launcher-version, and
    --plugin-service-port, since every plugin has a private port here.
    """
    from pipecd_runtime import logs  # noqa: PLC0415
    from piped import app, datafolder  # noqa: PLC0415
    from piped.agent import Settings  # noqa: PLC0415

    logs.configure(log_level, json_lines=None if log_encoding is None else log_encoding == "json")
    config = _config(config_file, config_data)
    data_dir = data_dir.absolute()
    with datafolder.locked(data_dir) as data_folder_id:
        settings = Settings(
            config=config,
            key=_key(config),
            tls=None if insecure else _tls(cert_file),
            data_dir=data_dir,
            data_folder_id=data_folder_id,
            tools_dir=(tools_dir or data_dir / "tools").absolute(),
            grace=grace_period.total_seconds(),
            live_state_interval=live_state_interval.total_seconds(),
            admin_port=admin_port,
            admin_host=admin_host,
            version=_version(),
        )
        asyncio.run(app.run(settings))


def _config(file: Path | None, data: str | None) -> "PipedConfig":
    from pipecd_model.config import load_piped  # noqa: PLC0415

    if (file is None) == (data is None):
        raise click.UsageError("give exactly one of --config-file and --config-data")
    if file is not None:
        text, name = _read(file), str(file)
    else:
        try:
            text, name = base64.b64decode(data or "", validate=True), "--config-data"
        except binascii.Error:
            raise click.UsageError("--config-data is not base64") from None
    loaded = load_piped(text, file=name)
    for warning in loaded.warnings:
        click.echo(make_printable(f"warning: {warning}"), err=True)
    return loaded.config


def _key(config: "PipedConfig") -> str:
    if config.piped_key_data is not None:
        return config.piped_key_data.decode().decode(errors="replace").strip()
    key = _read(Path(config.piped_key_file)).decode(errors="replace").strip()
    if not key:
        raise ConfigError(f"the piped key file {config.piped_key_file!r} is empty")
    return key


def _tls(cert_file: Path | None) -> "ClientTls":
    from pipecd_wire.rpc import ClientTls  # noqa: PLC0415

    return ClientTls(roots=None if cert_file is None else _read(cert_file))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(file)!r}: {os.strerror(error.errno or 0)}") from error


def _version() -> str:
    return version_of("pipecd-piped")


def main() -> None:
    """Run the command line; the entry point of the executable `piped`."""
    run_program(cli, explain=explain, name="piped")
