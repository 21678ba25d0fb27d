# SPDX-License-Identifier: Apache-2.0
"""JSON of template values, as Go reads and writes it."""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn

from pipecd_model.templates import floats
from pipecd_model.templates.kinds import NoItems, NoStrings, sort_keys

_ALWAYS: Final = {"\u2028": "\\u2028", "\u2029": "\\u2029"}
_HTML: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_ESCAPES: Final = {True: str.maketrans(_ALWAYS | _HTML), False: str.maketrans(_ALWAYS)}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def to_json(value: object, *, escapes_html: bool, indents: bool) -> str:
    """Return a value as JSON; raises ValueError for a number that has none."""
    table = _ESCAPES[escapes_html]
    return "".join(_write(value, table, "\n" if indents else ""))


def _text(value: str, table: dict[int, str]) -> str:
    written = json.dumps(value, ensure_ascii=False).translate(table)
    return written if written.isascii() else _SURROGATE.sub(r"\\ufffd", written)


def _write(value: object, table: dict[int, str], line: str) -> str:
    """Write a value; `line` starts a line of its own, or is empty."""
    if isinstance(value, str):
        return _text(value, table)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        colon = ": " if line else ":"
        inside = [
            _text(key, table) + colon + _write(value[key], table, line and f"{line}  ")
            for key in sort_keys(value)
        ]
        return _enclose("{", inside, "}", line)
    if isinstance(value, NoStrings | NoItems):
        return "null"
    if isinstance(value, list | tuple):
        return _enclose(
            "[", [_write(each, table, line and f"{line}  ") for each in value], "]", line
        )
    return "null"


def _enclose(opened: str, items: list[str], closed: str, line: str) -> str:
    if not items:
        return opened + closed
    inner = f"{line}  " if line else ""
    return opened + inner + f",{inner}".join(items) + line + closed


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError
    if value != 0 and not 1e-6 <= abs(value) < 1e21:
        return floats.write(value, "e").replace("e-0", "e-")
    return floats.write(value, "f")


def from_json(text: str) -> object:
    """Return what JSON means; raises ValueError or, nested too deeply, RecursionError."""
    value: object = json.loads(
        _SURROGATE.sub("\ufffd", text),
        parse_int=_to_float,
        parse_float=_to_float,
        parse_constant=_refuse,
    )
    return _plain(value)


def _to_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("out of range")
    return number


def _refuse(_: str) -> NoReturn:
    raise ValueError("not a number of JSON")


def _plain(value: object) -> object:
    """Replace halves of letters, which JSON can escape and no text can hold."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    return value
