# SPDX-License-Identifier: Apache-2.0
"""Reads the files that the flags of a command name: the configuration, the key, certificates.

What it needs is imported when it is called, so that `--help` of a command stays fast.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipecd_model.errors import ConfigError
from pipecd_runtime.terminal import make_printable

if TYPE_CHECKING:
    from pipecd_model.config import PipedConfig
    from pipecd_model.config.fault import Loaded
    from pipecd_wire.rpc import ClientTls


def load_config(file: Path | None, data: str | None) -> "Loaded[PipedConfig]":
    """Returns the configuration with its warnings. Raises ConfigError, or click.UsageError."""
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
    return load_piped(text, file=name)


def read_config(file: Path | None, data: str | None) -> "PipedConfig":
    """Returns the configuration, and prints its warnings. Raises as `load_config` does."""
    loaded = load_config(file, data)
    for warning in loaded.warnings:
        click.echo(make_printable(f"warning: {warning}"), err=True)
    return loaded.config


def read_key(config: "PipedConfig") -> str:
    """Returns the key of this piped. Raises ConfigError."""
    if config.piped_key_data is not None:
        return config.piped_key_data.decode().decode(errors="replace").strip()
    key = _read(Path(config.piped_key_file)).decode(errors="replace").strip()
    if not key:
        raise ConfigError(f"the piped key file {config.piped_key_file!r} is empty")
    return key


def read_tls(cert_file: Path | None) -> "ClientTls":
    """Returns the certificates to trust: those of the file, or the system's. Raises ConfigError."""
    from pipecd_wire.rpc import ClientTls  # noqa: PLC0415

    return ClientTls(roots=None if cert_file is None else _read(cert_file))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(file)!r}: {os.strerror(error.errno or 0)}") from error
