# SPDX-License-Identifier: Apache-2.0
"""`pipectl render`: what the templates of an application become, before anything is deployed.

The same code that piped runs, on files of the working copy, without a control plane.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import click

from pipecd_pipectl.output import echo

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=_FILE)
@click.option(
    "--private-key-file",
    "private_key_files",
    type=_FILE,
    multiple=True,
    help="Opens the secrets, to see that they can be; may be given twice.",
)
@click.option("--show-secrets", is_flag=True, help="Print them. Needs a private key.")
@click.option("--target", help="Print only this file, as it becomes.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text")
def render(
    *,
    file: Path,
    private_key_files: tuple[Path, ...],
    show_secrets: bool,
    target: str | None,
    output: str,
) -> None:
    """Show what an application's templates become.

    FILE is the application file. Printed are the files under encryption.decryptionTargets and
    attachment.targets; none is written. Secrets show, and functions see them, as ***.

    \b
    Example:
      pipectl render app.pipecd.yaml --target deployment.yaml
    """
    if show_secrets and not private_key_files:
        raise click.UsageError("--show-secrets needs --private-key-file")
    # Loaded when it is wanted: the other commands need no reader of configuration files.
    from pipecd_pipectl import rendering  # noqa: PLC0415

    result = rendering.render_application(file, keys=private_key_files, show_secrets=show_secrets)
    for warning in result.warnings:
        echo(f"warning: {warning}", err=True)
    _print(result.files, target=target, as_json=output == "json")


def _print(files: Mapping[str, bytes], *, target: str | None, as_json: bool) -> None:
    if target is not None:
        if target not in files:
            known = ", ".join(files) or "none"
            raise click.UsageError(
                f"no template of this application is {target!r}; there are: {known}"
            )
        echo(files[target], nl=False)
        return
    if as_json:
        shown = {path: content.decode(errors="replace") for path, content in files.items()}
        echo(json.dumps({"files": shown}, ensure_ascii=False))
        return
    if not files:
        echo("no file of this application is a template", err=True)
    for number, (path, content) in enumerate(files.items()):
        separator = "\n" if number else ""
        echo(f"{separator}==> {path} <==")
        echo(content, nl=not content.endswith(b"\n"))
