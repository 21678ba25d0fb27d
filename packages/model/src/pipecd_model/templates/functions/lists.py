# SPDX-License-Identifier: Apache-2.0
"""Functions for lists. A list is never changed: each gives a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.functions.numbers import to_int64
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.kinds import Lists, NoItems, identity, is_true


def _items(value: object) -> list[object]:
    if not isinstance(value, list | tuple):
        raise FunctionError("this is for lists alone")
    return list(cast("list[object]", value))


def _append(value: object, item: object) -> list[object]:
    return [*_items(value), item]


def _prepend(value: object, item: object) -> list[object]:
    return [item, *_items(value)]


def _concat(*values: object) -> list[object]:
    return [item for each in values for item in _items(each)] or NoItems()


def _chunk(size: int, value: object) -> Lists:
    items = _items(value)
    if size < 1:
        raise FunctionError("the size is below one")
    return Lists(items[start : start + size] for start in range(0, len(items), size))


def _first(value: object) -> object:
    items = _items(value)
    return items[0] if items else None


def _last(value: object) -> object:
    items = _items(value)
    return items[-1] if items else None


def _rest(value: object) -> list[object]:
    items = _items(value)
    return items[1:] if items else NoItems()


def _initial(value: object) -> list[object]:
    items = _items(value)
    return items[:-1] if items else NoItems()


def _uniq(value: object) -> list[object]:
    seen: dict[object, object] = {}
    for item in _items(value):
        seen.setdefault(identity(item), item)
    return list(seen.values())


def _omit(value: object, *omitted: object) -> list[object]:
    unwanted = {identity(item) for item in omitted}
    return [item for item in _items(value) if identity(item) not in unwanted]


def _has(needle: object, value: object) -> bool:
    if value is None:
        return False
    wanted = identity(needle)
    return any(identity(item) == wanted for item in _items(value))


def _slice(value: object, *bounds: object) -> object:
    items = _items(value)
    if not items:
        return None
    start = to_int64(bounds[0]) if bounds else 0
    end = to_int64(bounds[1]) if len(bounds) > 1 else len(items)
    if not 0 <= start <= end <= len(items):
        raise IndexError
    kind = cast("type[list[object]]", type(value) if isinstance(value, list) else list)
    return kind(items[start:end])


def _both(name: str, function: Function) -> dict[str, Function]:
    """Return a function under its name, and under that of the one that fails by itself."""
    return {name: function, f"must{name[0].upper()}{name[1:]}": function}


LISTS: Final[Mapping[str, Function]] = {
    "list": declare("a*", lambda *items: list(items)),
    "tuple": declare("a*", lambda *items: list(items)),
    "concat": declare("a*", _concat),
    **_both("append", declare("aa", _append)),
    **_both("push", declare("aa", _append)),
    **_both("prepend", declare("aa", _prepend)),
    **_both("chunk", declare("ia", _chunk)),
    **_both("compact", declare("a", lambda value: [i for i in _items(value) if is_true(i)])),
    **_both("first", declare("a", _first)),
    **_both("last", declare("a", _last)),
    **_both("rest", declare("a", _rest)),
    **_both("initial", declare("a", _initial)),
    **_both("reverse", declare("a", lambda value: _items(value)[::-1])),
    **_both("has", declare("aa", _has)),
    **_both("slice", declare("aa*", _slice)),
    **_both("uniq", declare("a", _uniq)),
    **_both("without", declare("aa*", _omit)),
}
