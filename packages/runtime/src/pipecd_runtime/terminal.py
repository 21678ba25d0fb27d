# SPDX-License-Identifier: Apache-2.0
"""Text from outside on a person's terminal: colours pass, every other control is shown as text.

Logs, commit messages, names and error messages come from repositories, scripts and plugins. A
terminal obeys what stands in them: it sets titles, fills the clipboard, moves the cursor over lines
that were printed before, or shows letters in another order than they are read by programs.
"""

import json
import re
from typing import Final

RESET: Final = "\x1b[0m"

_COLOUR: Final = r"\x1b\[[0-9;:]{0,32}m"

_UNSAFE: Final = re.compile(
    _COLOUR
    + r"|[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1
    + "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # order of letters, line separators
    + "\u00ad\u034f\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible
    + "\U000e0000-\U000e007f"  # tags: invisible letters
    + "\ud800-\udfff]"  # bytes that were no text
)

_COLOUR_NUMBERS: Final = frozenset(
    {0, 1, 2, 3, 4, 7, 22, 23, 24, 27, *range(30, 50), *range(90, 98), *range(100, 108)}
)
"""Colours and weights; not blinking, not concealed."""

_COLOUR_PARTS: Final = {5: 1, 2: 3}
"""How many numbers follow each way to name a colour."""

_LINE_BREAKS: Final = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


def make_printable(text: str) -> str:
    """Returns a text of any number of lines that is safe to print; its colours end with it."""
    text = text.replace("\r\n", "\n")
    shown = _UNSAFE.sub(_show, text)
    if "\x1b" in shown and not shown.rstrip("\n").endswith(RESET):
        body = shown.rstrip("\n")
        return body + RESET + shown[len(body) :]
    return shown


def make_printable_line(text: str) -> str:
    """Returns the same for a cell or a field: one line, without colours."""
    joined = _LINE_BREAKS.sub(" ", text.strip()).replace("\t", " ")
    return _UNSAFE.sub(lambda found: _escape(found.group()), joined)


def escape_for_json(text: str) -> str:
    """Returns a JSON text that says the same without a control that JSON allows as it is."""
    return _UNSAFE.sub(lambda found: json.dumps(found.group())[1:-1], text)


def _show(found: re.Match[str]) -> str:
    control = found.group()
    return control if len(control) > 1 and _is_colour(control) else _escape(control)


def _is_colour(sequence: str) -> bool:
    numbers = [int(each or 0) for each in re.split("[;:]", sequence[2:-1])]
    while numbers:
        number = numbers.pop(0)
        if number not in _COLOUR_NUMBERS:
            return False
        if number in {38, 48}:  # a colour by number, or by its three parts
            size = _COLOUR_PARTS.get(numbers[0], 0) if numbers else 0
            parts, numbers = numbers[1 : size + 1], numbers[size + 1 :]
            if not size or len(parts) < size or max(parts) > 255:
                return False
    return True


def _escape(control: str) -> str:
    code = ord(control[0])
    if code < 0x100:
        return f"\\x{code:02x}{control[1:]}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
