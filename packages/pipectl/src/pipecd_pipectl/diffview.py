# SPDX-License-Identifier: Apache-2.0
"""What plugins say that a change does, and what a deployment changed, as people read it."""

from collections.abc import Iterable
from typing import Final

import click

from pipecd_pipectl.output import echo, print_fields
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import DeploymentDiff, PluginDiff

COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def describe_files(files: Iterable[str], left_out: int) -> str:
    """Returns the files that differ, in a line."""
    more = f", and {left_out} more" if left_out else ""
    return f"{', '.join(files)}{more}" or "no difference"


def print_plugin_diffs(diffs: Iterable[PluginDiff]) -> None:
    """Prints what each plugin says of each deploy target."""
    for diff in diffs:
        where = f" ({diff.deploy_target})" if diff.deploy_target else ""
        echo()
        echo(make_printable_line(f"{diff.plugin_name}{where}: {diff.summary or 'no summary'}"))
        _print_lines(diff.details)


def _print_lines(text: str) -> None:
    for line in text.rstrip("\n").splitlines():
        shown = make_printable_line(line)
        echo(click.style(f"  {shown}", fg=COLOURS.get(line[:1])))


def print_deployment_diff(deployment: Deployment, diff: DeploymentDiff) -> None:
    """Prints what a deployment changes against what ran before it."""
    running = diff.running_commit_hash
    subject = deployment.trigger.commit.message.partition("\n")[0]
    name = click.style(make_printable_line(deployment.application_name), bold=True)
    echo(f"{name}  what {deployment.id[:8]} changes")
    echo()
    fields = [
        ("ran before", running[:7] or "nothing: it is the first deployment"),
        ("deploys", f'{diff.commit_hash[:7]} "{subject}"'),
    ]
    if running:
        fields.append(("files", describe_files(diff.files, diff.files_left_out)))
    print_fields([*fields, ("error", diff.error)])
    if diff.git_diff:
        echo()
        _print_lines(diff.git_diff)
    print_plugin_diffs(diff.diffs)
