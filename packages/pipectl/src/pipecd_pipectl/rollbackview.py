# SPDX-License-Identifier: Apache-2.0
"""What a roll-back would change, as people read it before they say yes."""

import time

import click

from pipecd_pipectl.diffview import describe_files, print_plugin_diffs
from pipecd_pipectl.output import echo, print_fields
from pipecd_pipectl.times import format_age
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.pipecd.control.control_pb2 import RollBackPreview


def print_preview(name: str, preview: RollBackPreview) -> None:
    """Prints what a roll-back of an application would change."""
    age = format_age(preview.commit_created_at.seconds, time.time())
    message = preview.commit_message.partition("\n")[0]
    running = preview.running_commit_hash
    echo(f"{click.style(make_printable_line(name), bold=True)}  roll back")
    echo()
    print_fields(
        [
            ("from", running[:7] or "nothing"),
            ("to", f'{preview.commit_hash[:7]} "{message}" by {preview.commit_author}, {age}'),
            ("files", describe_files(preview.files, preview.files_left_out)),
            ("stages", ", ".join(preview.stages)),
            ("error", preview.error),
        ]
    )
    print_plugin_diffs(preview.diffs)
    echo()
