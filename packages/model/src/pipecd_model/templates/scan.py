# SPDX-License-Identifier: Apache-2.0
"""A look at a template before the engine reads it: is it of a size that is read in no time?

The engine takes its time per action and has a weak spot for numbers, so both are counted first.
"""

from __future__ import annotations

import re
from typing import Final

from pipecd_model.templates.limits import Limits

OPEN: Final = "{{"

_COMMENT: Final = re.compile(r"\{\{(?:-\s)?/\*")
_ACTION: Final = re.compile(
    r"""\{\{(?>"(?>[^"\\\n]|\\.)*"|`[^`]*`|'(?>[^'\\\n]|\\.)*'|[^"`'}]+|\}(?!\}))*+\}\}""",
    re.DOTALL,
)
_TEXTS: Final = re.compile(r"\"(?>[^\"\\\n]|\\.)*\"|`[^`]*`")
# The engine's pattern for these tries all ways to divide the digits.
_LONG_OCTAL: Final = re.compile(r"(?<![0-9A-Za-z_.])0[0-7_]{9,}")


class RefusedError(Exception):
    """The engine should not read this."""

    def __init__(self, message: str, *, hint: str = "", position: int = 0) -> None:
        super().__init__(message)
        self.hint = hint
        self.position = position


def check(text: str, limits: Limits) -> None:
    """Raise RefusedError for a template that is too much to read."""
    if len(text) > limits.text:
        raise RefusedError(
            f"the template is too large: {len(text):,} characters, at most {limits.text:,}",
            hint="put what needs no template into another file",
        )
    count = characters = 0
    position = text.find(OPEN)
    while position >= 0:
        end = _end(text, position)
        count += 1
        characters += (len(text) if end < 0 else end) - position
        if count > limits.actions or characters > limits.action_text:
            raise RefusedError("the template has too many actions", position=position)
        if end < 0:
            return  # the engine says best what is wrong with it
        action = _TEXTS.sub('""', text[position:end])
        if found := _LONG_OCTAL.search(action):
            raise RefusedError(
                f"the number {found[0][:12]}… is too long",
                hint="put it in quotes",
                position=position,
            )
        position = text.find(OPEN, end)


def _end(text: str, position: int) -> int:
    """Find the end of the action that is opened here; -1 if it has none."""
    if comment := _COMMENT.match(text, position):
        closed = text.find("*/", comment.end())
        return -1 if closed < 0 else closed + 2
    action = _ACTION.match(text, position)
    return action.end() if action else -1
