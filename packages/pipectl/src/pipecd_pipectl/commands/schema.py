# SPDX-License-Identifier: Apache-2.0
"""`pipectl schema`: the JSON Schema of a kind of file, for editors. Needs no server."""

from __future__ import annotations

import json

import click

from pipecd_model.errors import ConfigError
from pipecd_pipectl.output import echo


@click.command()
@click.argument("kind")
def schema(kind: str) -> None:
    """Print the JSON Schema of a kind.

    KIND is Application, Piped, ControlPlane or another kind of our documents; editors that know the
    schema complete and check a file while it is written.

    \b
    Example:
      pipectl schema Application > application.schema.json
    """
    from pipecd_model.config import rules  # noqa: PLC0415 - others need not wait for it
    from pipecd_model.config.jsonschema import NAMES, document_schema  # noqa: PLC0415

    known = next((name for name in NAMES if name.lower() == kind.lower()), None)
    if known is None:
        near = rules.nearest(kind, NAMES)
        hint = f"{near} one of {', '.join(NAMES)}".strip()
        raise ConfigError(f"there is no kind {kind!r}", hint=hint)
    echo(json.dumps(document_schema(known), indent=2, ensure_ascii=False))
