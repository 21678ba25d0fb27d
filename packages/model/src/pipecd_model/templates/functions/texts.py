# SPDX-License-Identifier: Apache-2.0
"""Functions for texts: trimming, cutting, joining, searching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipecd_model.templates import quoting
from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.gofmt import to_text
from pipecd_model.templates.kinds import StringMap, Strings, to_bytes
from pipecd_model.templates.kinds import to_text as as_text
from pipecd_model.templates.limits import ITEM

SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""White space as Unicode and Go have it; Python counts a few control characters too."""

_NO_SPACE: Final = dict.fromkeys(map(ord, SPACES))


def texts_of(value: object) -> Strings:
    """Return the items of a list as texts; what is no list is the only one."""
    if isinstance(value, list | tuple):
        return Strings(to_text(item) for item in value if item is not None)
    return Strings() if value is None else Strings([to_text(value)])


def _quote(*values: object) -> str:
    return " ".join(quoting.quote(to_text(each)) for each in values if each is not None)


def _squote(*values: object) -> str:
    return " ".join(f"'{to_text(each)}'" for each in values if each is not None)


def _cat(*values: object) -> str:
    return " ".join(to_text(each) for each in values if each is not None)


def _substr(start: int, end: int, value: str) -> str:
    content = to_bytes(value)
    if start < 0:
        start = 0
        if not 0 <= end <= len(content):
            raise IndexError
    elif end < 0 or end > len(content):
        end = len(content)
    if start > end:
        raise IndexError
    return as_text(content[start:end])


def _trunc(count: int, value: str) -> str:
    content = to_bytes(value)
    if count < 0 and len(content) + count > 0:
        return as_text(content[count:])
    return as_text(content[:count]) if count >= 0 else value


def _repeat(count: int, value: str) -> str:
    if count < 0:
        raise FunctionError("the count is below zero")
    return value * count


def _indent(spaces: int, value: str) -> str:
    if spaces < 0:
        raise FunctionError("the count is below zero")
    pad = " " * spaces
    return pad + value.replace("\n", f"\n{pad}")


def _replace(old: str, new: str, value: str) -> str:
    return value.replace(old, new)


def _trim_all(cut: str, value: str) -> str:
    return value.strip(cut) if cut else value


def _trim_suffix(suffix: str, value: str) -> str:
    return value.removesuffix(suffix)


def _trim_prefix(prefix: str, value: str) -> str:
    return value.removeprefix(prefix)


def _split(separator: str, value: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        parts = list(value)
        return (
            parts
            if count < 0 or len(parts) <= count
            else [
                *parts[: count - 1],
                "".join(parts[count - 1 :]),
            ]
        )
    return value.split(separator, count - 1 if count > 0 else -1)


def _split_map(separator: str, value: str) -> StringMap:
    return _number_parts(_split(separator, value))


def _split_list(separator: str, value: str) -> Strings:
    return Strings(_split(separator, value))


def _splitn(separator: str, count: int, value: str) -> StringMap:
    return _number_parts(_split(separator, value, count))


def _number_parts(parts: list[str]) -> StringMap:
    return StringMap((f"_{number}", part) for number, part in enumerate(parts))


def _join(separator: str, value: object) -> str:
    return separator.join(texts_of(value))


def _sort(value: object) -> Strings:
    if not isinstance(value, list | tuple):
        return Strings([to_text(value)])
    return Strings(sorted(texts_of(value), key=to_bytes))


def _plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


def _grow_repeat(count: int, value: str) -> int:
    return max(count, 0) * len(value)


def _grow_indent(spaces: int, value: str) -> int:
    return max(spaces, 0) * (1 + value.count("\n"))


def _grow_replace(old: str, new: str, value: str) -> int:
    return value.count(old) * len(new)


def _grow_join(separator: str, items: object) -> int:
    return len(separator) * len(items) if isinstance(items, list | tuple) else 0


def _grow_split(separator: str, value: str) -> int:
    return (value.count(separator) + 1) * 2 * ITEM


def _grow_splitn(separator: str, _: int, value: str) -> int:
    return _grow_split(separator, value)


TEXTS: Final[Mapping[str, Function]] = {
    "hello": declare("", lambda: "Hello!"),
    "cat": declare("a*", _cat),
    "contains": declare("ss", lambda part, value: part in value),
    "hasPrefix": declare("ss", lambda prefix, value: value.startswith(prefix)),
    "hasSuffix": declare("ss", lambda suffix, value: value.endswith(suffix)),
    "indent": declare("is", _indent, cost=_grow_indent),
    "nindent": declare("is", lambda n, value: "\n" + _indent(n, value), cost=_grow_indent),
    "join": declare("sa", _join, cost=_grow_join),
    "nospace": declare("s", lambda value: value.translate(_NO_SPACE)),
    "plural": declare("ssi", _plural),
    "quote": declare("a*", _quote),
    "repeat": declare("is", _repeat, cost=_grow_repeat),
    "replace": declare("sss", _replace, cost=_grow_replace),
    "sortAlpha": declare("a", _sort),
    "split": declare("ss", _split_map, cost=_grow_split),
    "splitList": declare("ss", _split_list, cost=_grow_split),
    "splitn": declare("sis", _splitn, cost=_grow_splitn),
    "squote": declare("a*", _squote),
    "substr": declare("iis", _substr),
    "toString": declare("a", to_text),
    "toStrings": declare("a", texts_of),
    "trim": declare("s", lambda value: value.strip(SPACES)),
    "trimAll": declare("ss", _trim_all),
    "trimall": declare("ss", _trim_all),
    "trimPrefix": declare("ss", _trim_prefix),
    "trimSuffix": declare("ss", _trim_suffix),
    "trunc": declare("is", _trunc),
}
