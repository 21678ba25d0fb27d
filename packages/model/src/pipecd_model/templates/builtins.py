# SPDX-License-Identifier: Apache-2.0
"""The functions that Go's templates have by themselves, as far as they can make something large.

The engine has them too, but its own cannot be held to a meter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote_plus

from gotpl.runtime.gofmt import sprintf
from gotpl.runtime.values import INVALID, UNTYPED_NIL

from pipecd_model.templates.limits import METER, NoSuchKeyError

_HTML: Final = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_JS: Final = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in (*range(0x20), 0x2028, 0x2029)}
    | {"\\": r"\\", "'": r"\'", '"': r"\""}
    | {char: f"\\u{ord(char):04X}" for char in "<>&="}
)


def _text(value: object) -> str:
    return "<nil>" if value is None or value is UNTYPED_NIL else sprintf("%v", value)


def _print(*values: object) -> str:
    written: list[str] = []
    for number, value in enumerate(values):
        if number and not isinstance(value, str) and not isinstance(values[number - 1], str):
            written.append(" ")
        written.append(_text(value))
    return "".join(written)


def _println(*values: object) -> str:
    return " ".join(_text(value) for value in values) + "\n"


def _printf(form: str, *values: object) -> str:
    return sprintf(form, *values)


def _html(*values: object) -> str:
    return _print(*values).translate(_HTML)


def _js(*values: object) -> str:
    return _print(*values).translate(_JS)


def _urlquery(*values: object) -> str:
    return quote_plus(_print(*values), safe="", errors="surrogateescape")


def _index(value: object, *keys: object) -> object:
    for key in keys:
        if isinstance(value, Mapping):
            if key not in value and METER.get().strict:
                raise NoSuchKeyError(key)
            value = value.get(key, INVALID)
        elif isinstance(value, list | tuple | str):
            if not isinstance(key, int) or isinstance(key, bool):
                raise TypeError("the index of a list must be a number")
            items = value.encode(errors="surrogateescape") if isinstance(value, str) else value
            if not 0 <= key < len(items):
                raise IndexError("index out of range")
            value = items[key]
        else:
            raise TypeError("only a list, a map or a text has an index")
    return value


BUILTINS: Final[Mapping[str, Callable[..., object]]] = {
    "html": _html,
    "index": _index,
    "js": _js,
    "print": _print,
    "printf": _printf,
    "println": _println,
    "urlquery": _urlquery,
}
