# SPDX-License-Identifier: Apache-2.0
"""The command `piped run`: reads flags and files into settings.

What it needs is imported when it runs, so that `piped run --help` stays fast.
"""

from datetime import timedelta
from pathlib import Path

import click

from pipecd_model.config.values import Duration, format_bad_value
from pipecd_piped.configuration import read_config, read_key, read_tls
from pipecd_piped.version import find_version
from pipecd_runtime.command_line import DurationParam

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


DURATION = DurationParam(Duration.parse, format_error=format_bad_value)


@click.command()
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
    import asyncio  # noqa: PLC0415

    from pipecd_piped import app, datafolder  # noqa: PLC0415
    from pipecd_piped.agent import Settings  # noqa: PLC0415
    from pipecd_runtime import logs  # noqa: PLC0415

    logs.configure(log_level, json_lines=None if log_encoding is None else log_encoding == "json")
    config = read_config(config_file, config_data)
    data_dir = data_dir.absolute()
    with datafolder.locked(data_dir) as data_folder_id:
        settings = Settings(
            config=config,
            key=read_key(config),
            tls=None if insecure else read_tls(cert_file),
            data_dir=data_dir,
            data_folder_id=data_folder_id,
            tools_dir=(tools_dir or data_dir / "tools").absolute(),
            grace_seconds=grace_period.total_seconds(),
            live_state_interval_seconds=live_state_interval.total_seconds(),
            admin_port=admin_port,
            admin_host=admin_host,
            version=find_version(),
        )
        asyncio.run(app.run(settings))
