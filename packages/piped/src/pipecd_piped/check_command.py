# SPDX-License-Identifier: Apache-2.0
"""The command `piped check`: says whether piped can run with a configuration, before it does."""

import asyncio
from pathlib import Path

import click

from pipecd_model.config import ConfigFaultsError
from pipecd_model.errors import PipecdError
from pipecd_piped.checkup import check_configuration
from pipecd_piped.configuration import load_config, read_key, read_tls
from pipecd_runtime.checkup import fail, has_failed, warn
from pipecd_runtime.checkup_output import print_rows

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--config-file", type=_FILE, help="A document of the kind Piped.")
@click.option("--config-data", help="The same document as base64.")
@click.option("--insecure", is_flag=True, help="Talk to the control plane without TLS.")
@click.option(
    "--cert-file", type=_FILE, help="Certificates (PEM) to trust instead of the system's."
)
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def check(
    *,
    config_file: Path | None,
    config_data: str | None,
    insecure: bool,
    cert_file: Path | None,
    output: str,
) -> None:
    """Check a configuration: the control plane, git, the plugins.

    Looks at everything that the file names, as the piped that runs here would: its key and whether
    the control plane takes it, the branches of its repositories, its plugins, the keys of secrets.
    Nothing is changed. Exits with 1 when a check fails.
    """
    try:
        loaded = load_config(config_file, config_data)
        tls = None if insecure else read_tls(cert_file)
    except ConfigFaultsError as error:
        rows = [fail("piped file", str(fault), "") for fault in error.faults]
    except PipecdError as error:
        rows = [fail("piped file", str(error), error.hint or "check the path")]
    else:
        config = loaded.config
        rows = [warn("piped file", str(warning), "") for warning in loaded.warnings]
        rows += asyncio.run(check_configuration(config, find_key=lambda: read_key(config), tls=tls))
    print_rows(rows, as_json=output == "json")
    if has_failed(rows):
        raise click.exceptions.Exit(1)
