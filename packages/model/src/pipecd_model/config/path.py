# SPDX-License-Identifier: Apache-2.0
"""The way to a value inside a document, as keys and list positions."""

Step = str | int
Path = tuple[Step, ...]


def format_path(path: Path) -> str:
    """Write a path as people read it: `spec.pipeline.stages[2].with.duration`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text
