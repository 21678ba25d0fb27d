# SPDX-License-Identifier: Apache-2.0
"""What a commit would change: the two definitions, compared with those of the running commit.

Nothing of AWS is asked, and nothing of the repository is run.
"""

from collections.abc import Mapping
from typing import Any

from pipecd_plugin_ecs.definition import Definitions
from pipecd_plugin_ecs.masking import hide_values
from pipecd_sdk import Preview
from pipecd_sdk.kit.diff import MISSING, format_unified
from pipecd_sdk.kit.text import make_printable


def preview(running: Definitions | None, target: Definitions) -> Preview:
    """Returns which definitions change, with a diff of each."""
    parts = {
        "task definition": (running.task if running else None, target.task),
        "service definition": (running.service if running else None, target.service),
    }
    changed = {name: pair for name, pair in parts.items() if pair[0] != pair[1]}
    if not changed:
        return Preview(summary="No changes were detected", no_change=True)
    hides = target.hides_values or (running is not None and running.hides_values)
    details = "".join(
        f"# {name}\n{_format(old, new, hides=hides)}\n" for name, (old, new) in changed.items()
    )
    word = "changed" if running else "new"
    return Preview(summary=f"{' and '.join(changed)} {word}", details=details)


def _format(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, *, hides: bool) -> str:
    shown = [
        MISSING if each is None else hide_values(each) if hides else each for each in (old, new)
    ]
    text = format_unified(*shown)
    return make_printable(text) or "  (only hidden values differ)\n"
