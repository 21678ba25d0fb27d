# SPDX-License-Identifier: Apache-2.0
"""`pipectl encrypt`: close a secret, so that only one piped can open it."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from pipecd_model.secrets.cipher import Sealer
from pipecd_model.secrets.sealing import encode_base64
from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.completions import complete_piped_ids
from pipecd_pipectl.output import echo
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.rpc import call

_LARGEST: Final = 10 << 20
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@use_client
async def _ask(client: Client, *, piped_id: str, plaintext: str) -> None:
    request = pb.EncryptRequest(piped_id=piped_id, plaintext=plaintext)
    echo((await call(client.api.Encrypt, request)).ciphertext)


@click.command()
@click.option(
    "--piped-id",
    help="The piped that shall open it; asks the control plane.",
    shell_complete=complete_piped_ids,
)
@click.option(
    "--public-key-file",
    type=_FILE,
    help="The piped's public key, PEM; asks nobody and sends nothing.",
)
@click.option("--input-file", type=_FILE, help="File with the secret; else it comes from stdin.")
@click.option("--use-base64-encoding", is_flag=True, help="Encode it as base64 before closing it.")
@click.pass_context
def encrypt(
    context: click.Context,
    /,
    *,
    piped_id: str | None,
    public_key_file: Path | None,
    input_file: Path | None,
    use_base64_encoding: bool,
    **connection: Any,
) -> None:
    """Close a secret, so that it can be kept in git.

    Prints the form that goes under encryptedSecrets. Needs --public-key-file, or --piped-id and a
    control plane, which knows the key of the piped.

    \b
    Example:
      pipectl encrypt --public-key-file public.pem --input-file password.txt
    """
    if bool(piped_id) == bool(public_key_file):
        raise click.UsageError("give one of --piped-id and --public-key-file")
    data = _secret(input_file)
    if public_key_file:
        sealer = Sealer(public_key_file.read_bytes())
        echo(sealer.seal(encode_base64(data) if use_base64_encoding else data))
        return
    # Encoded here rather than there, because only a text can be sent.
    plaintext = encode_base64(data) if use_base64_encoding else _text(data)
    context.invoke(_ask, piped_id=piped_id, plaintext=plaintext, **connection)


encrypt.params += _ask.params


def _secret(input_file: Path | None) -> bytes:
    if input_file:
        with input_file.open("rb") as opened:
            data = opened.read(_LARGEST + 1)
    elif sys.stdin.isatty():
        data = str(click.prompt("Secret", hide_input=True)).encode()
    else:
        data = sys.stdin.buffer.read(_LARGEST + 1)
    if not data:
        raise click.UsageError("the secret is empty")
    if len(data) > _LARGEST:
        raise click.UsageError(f"the secret is larger than {_LARGEST >> 20} MB")
    if data.endswith(b"\n"):
        echo("note: the secret ends with a line break, which is kept", err=True)
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError(
            "the secret is not a text: give --use-base64-encoding, and b64dec where it is used"
        ) from None
