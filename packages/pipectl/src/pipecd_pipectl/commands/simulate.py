# SPDX-License-Identifier: Apache-2.0
"""`pipectl simulate`: says what a deployment would run if a stage failed. Needs no server."""

from __future__ import annotations

from pathlib import Path

import click

from pipecd_pipectl.output import echo, print_json

STAGE = click.IntRange(min=1)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--fail-at", type=STAGE, help="The stage that fails, counted from 1.")
@click.option("--cancel-at", type=STAGE, help="The stage during which somebody cancels.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text")
def simulate(file: Path, fail_at: int | None, cancel_at: int | None, output: str) -> None:
    """Print which stages of an application run, and why.

    They are printed in the order in which they run.
    With --fail-at or --cancel-at also which rollback stages follow. Stages of plugins that are
    not installed here are known too.

    \b
    Example:
      pipectl simulate app.pipecd.yaml --fail-at 2
    """
    if fail_at is not None and cancel_at is not None:
        raise click.UsageError("give only one of --fail-at and --cancel-at")
    from pipecd_model import simulate as model  # noqa: PLC0415 - others need not wait for it
    from pipecd_model.config import load_application  # noqa: PLC0415
    from pipecd_pipectl import documents  # noqa: PLC0415
    from pipecd_pipectl.installed import find_installed_plugins  # noqa: PLC0415

    config = load_application(documents.read(file), file=str(file)).config
    stop = model.Stop.FAILS if cancel_at is None else model.Stop.IS_CANCELLED
    steps = model.simulate(
        config, stop_at=fail_at or cancel_at, stop=stop, installed=find_installed_plugins()
    )
    if output == "json":
        print_json(
            {
                "steps": [
                    {
                        "number": step.number,
                        "name": step.name,
                        "runs": step.runs,
                        "rollback": step.is_rollback,
                        "outcome": step.outcome,
                        "why": step.why,
                    }
                    for step in steps
                ]
            }
        )
        return
    for step in steps:
        echo(str(step))
