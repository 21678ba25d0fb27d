# SPDX-License-Identifier: Apache-2.0
"""The functions that Go's templates have by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote_plus

from pipecd_model.templates.charmap import replace_characters
from pipecd_model.templates.faults import FunctionError, NoSuchKeyError
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.gofmt import to_text
from pipecd_model.templates.kinds import Byte, StringMap, is_true, to_bytes
from pipecd_model.templates.limits import Meter
from pipecd_model.templates.printf import sprintf

_HTML: Final = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_JS: Final = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(0x20)}
    | {"\\": r"\\", "'": r"\'", '"': r"\""}
    | {char: f"\\u{ord(char):04X}" for char in "<>&="}
)


def _print(*values: object) -> str:
    written: list[str] = []
    for number, value in enumerate(values):
        if number and not isinstance(value, str) and not isinstance(values[number - 1], str):
            written.append(" ")
        written.append(to_text(value))
    return "".join(written)


def _println(*values: object) -> str:
    return " ".join(map(to_text, values)) + "\n"


def _printf(meter: Meter, form: str, *values: object) -> str:
    return sprintf(meter, form, values)


def _print_values(values: tuple[object, ...]) -> str:
    """Returns the text that is then escaped; None is `<no value>`, as an action writes it."""
    return _print(*("<no value>" if each is None else each for each in values))


def _html(*values: object) -> str:
    return _print_values(values).translate(_HTML)


def _js(*values: object) -> str:
    text = _print_values(values).translate(_JS)
    if text.isprintable():
        return text
    return replace_characters(text, lambda each: each if _is_shown(each) else _escape(each))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04X}"


def _is_shown(char: str) -> bool:
    return char.isascii() or char.isprintable() or "\udc80" <= char <= "\udcff"


def _urlquery(*values: object) -> str:
    return quote_plus(to_bytes(_print_values(values)), safe="")


def _grow_urlquery(*values: object) -> int:
    """Refuse what takes long: it is done byte by byte."""
    return 8 * sum(len(each) for each in values if isinstance(each, str | list | dict))


def _len(value: object) -> int:
    if isinstance(value, str):
        return len(to_bytes(value))
    if isinstance(value, list | tuple | dict):
        return len(value)
    raise FunctionError("only a list, a map or a text has a length")


def _index(meter: Meter, value: object, *keys: object) -> object:
    if value is None:
        raise FunctionError("only a list, a map or a text has an index")
    for number, key in enumerate(keys):
        if isinstance(value, dict):
            value = _entry(meter, value, key, keys[:number])
        elif isinstance(value, list | tuple | str):
            value = _item(value, key)
        else:
            raise FunctionError("only a list, a map or a text has an index")
    return value


def _entry(
    meter: Meter, value: dict[str, object], key: object, inside: tuple[object, ...]
) -> object:
    if not isinstance(key, str):
        raise FunctionError("the key of a map must be a text")
    if key in value:
        return value[key]
    if meter.strict:
        raise NoSuchKeyError(key, value, [str(each) for each in inside])
    return "" if isinstance(value, StringMap) else None


def _item(value: Any, key: object) -> object:
    if not isinstance(key, int) or isinstance(key, bool):
        raise FunctionError("the index of a list must be a whole number")
    items = to_bytes(value) if isinstance(value, str) else value
    if not 0 <= key < len(items):
        raise IndexError
    item: object = items[key]
    return Byte(items[key]) if isinstance(value, str) else item


_BASIC: Final = {bool: "bool", float: "float", str: "text"}


def _basic(value: object) -> str:
    """Return the kind of a value that can be compared; empty for all others."""
    kind = _BASIC.get(type(value), "")
    return kind or ("whole" if isinstance(value, int) else "")


def _eq(first: object, *others: object) -> bool:
    if not others:
        raise FunctionError("there is nothing to compare with")
    return any(_is_equal(first, other) for other in others)


def _is_equal(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    kind = _basic(left)
    if kind != _basic(right) or not kind:
        raise TypeError
    return bool(left == right)


def _declare_comparison(rule: Callable[[Any, Any], bool]) -> Function:
    def compare(left: Any, right: Any) -> bool:
        kind = _basic(left)
        if kind != _basic(right) or kind in {"", "bool"}:
            raise TypeError
        if kind == "text":
            left, right = to_bytes(left), to_bytes(right)
        return rule(left, right)

    return declare("vv", compare)


BUILTINS: Final[Mapping[str, Function]] = {
    "and": declare("vv*", lambda *values: values, stops_at=False),
    "or": declare("vv*", lambda *values: values, stops_at=True),
    "not": declare("v", lambda value: not is_true(value)),
    "len": declare("v", _len),
    "index": declare("vv*", _index, metered=True),
    "print": declare("a*", _print),
    "println": declare("a*", _println),
    "printf": declare("sa*", _printf, metered=True),
    "html": declare("a*", _html),
    "js": declare("a*", _js),
    "urlquery": declare("a*", _urlquery, cost=_grow_urlquery),
    "eq": declare("vv*", _eq),
    "ne": declare("vv", lambda left, right: not _is_equal(left, right)),
    "lt": _declare_comparison(lambda left, right: left < right),
    "le": _declare_comparison(lambda left, right: left <= right),
    "gt": _declare_comparison(lambda left, right: not left <= right),
    "ge": _declare_comparison(lambda left, right: not left < right),
}
