# SPDX-License-Identifier: Apache-2.0
"""What a roll-back would change, as people read it before they say yes."""

import time
from typing import Final

import click

from pipecd_pipectl.output import echo, print_fields
from pipecd_pipectl.times import format_age
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.pipecd.control.control_pb2 import PluginDiff, RollBackPreview

COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def print_preview(name: str, preview: RollBackPreview) -> None:
    """Prints what a roll-back of an application would change."""
    age = format_age(preview.commit_created_at.seconds, time.time())
    message = preview.commit_message.partition("\n")[0]
    more = f", and {preview.files_left_out} more" if preview.files_left_out else ""
    running = preview.running_commit_hash
    echo(f"{click.style(make_printable_line(name), bold=True)}  roll back")
    echo()
    print_fields(
        [
            ("from", running[:7] or "nothing"),
            ("to", f'{preview.commit_hash[:7]} "{message}" by {preview.commit_author}, {age}'),
            ("files", f"{', '.join(preview.files)}{more}" if preview.files else "no difference"),
            ("stages", ", ".join(preview.stages)),
            ("error", preview.error),
        ]
    )
    for diff in preview.diffs:
        _print_diff(diff)
    echo()


def _print_diff(diff: PluginDiff) -> None:
    where = f" ({diff.deploy_target})" if diff.deploy_target else ""
    echo()
    echo(make_printable_line(f"{diff.plugin_name}{where}: {diff.summary or 'no summary'}"))
    for line in diff.details.rstrip("\n").splitlines():
        shown = make_printable_line(line)
        echo(click.style(f"  {shown}", fg=COLOURS.get(line[:1])))
