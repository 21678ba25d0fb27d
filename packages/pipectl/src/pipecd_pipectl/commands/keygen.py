# SPDX-License-Identifier: Apache-2.0
"""`pipectl keygen`: the pair of keys that closes and opens a piped's secrets."""

import os
from pathlib import Path

import click

from pipecd_model.secrets import KeyPair
from pipecd_pipectl.output import echo

_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--private-key-file", type=_NEW_FILE, required=True, help="Where to write this half.")
@click.option("--public-key-file", type=_NEW_FILE, required=True, help="Where to write that one.")
@click.option("--bits", type=click.IntRange(2048, 8192), default=3072, show_default=True)
def keygen(*, private_key_file: Path, public_key_file: Path, bits: int) -> None:
    """Make a key pair for secrets.

    Prints what the piped's configuration needs. The private half stays with the piped. Existing
    files are never overwritten.

    \b
    Example:
      pipectl keygen --private-key-file private.pem --public-key-file public.pem
    """
    for file in (private_key_file, public_key_file):
        if file.exists():
            raise click.UsageError(f"{str(file)!r} is there already")
    pair = KeyPair.new(bits)
    _write(private_key_file, pair.private, mode=0o600)
    _write(public_key_file, pair.public, mode=0o644)
    echo("secretManagement:\n  type: KEY_PAIR\n  config:")
    echo(f"    privateKeyFile: {private_key_file.absolute()}")
    echo(f"    publicKeyFile: {public_key_file.absolute()}")


def _write(file: Path, data: bytes, *, mode: int) -> None:
    # Created with its mode at once: no other user can read it in between.
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
        opened.write(data)
