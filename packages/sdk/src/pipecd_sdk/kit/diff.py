# SPDX-License-Identifier: Apache-2.0
"""Structural difference of two trees of plain values, and two ways to show it.

The first tree is what is there (live, old), the second what should be (git, new). Lists are
compared by position, numbers as floats, and values of different types differ.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MISSING", "Node", "diff", "format_unified", "render"]


class _Missing:
    """The only value of its kind: there is nothing."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""What a node has on the side where there is nothing."""
MASK: Final = "*****"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One place where two trees differ.

    Example:
        >>> diff({"a": [1, 2]}, {"a": [1, 3]})[0]
        Node(path='a.1', keys=('a', 1), old=2, new=3)
    """

    path: str
    """Keys and list indexes, joined by dots."""
    keys: tuple[str | int, ...]
    old: Any
    new: Any

    def is_under(self, prefix: str) -> bool:
        """Returns whether the node is at this path, or below it."""
        return self.path == prefix or self.path.startswith(f"{prefix}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    equate_empty: bool
    ignore_adding_map_keys: bool
    numeric_strings: bool
    bool_strings: bool


def diff(
    old: Any,
    new: Any,
    *,
    equate_empty: bool = False,
    ignore_adding_map_keys: bool = False,
    numeric_strings: bool = False,
    bool_strings: bool = False,
    ignore: Mapping[str, Iterable[str]] | None = None,
    key: str = "",
) -> list[Node]:
    """Returns all places where two trees differ, sorted by their paths.

    `equate_empty`: nothing, None, an empty map or list, and zero equal nothing on the other side.
    `ignore_adding_map_keys`: keys that only the old tree has are passed over, at every depth; items
    of lists are not. `numeric_strings`, `bool_strings`: a number or truth value equals the text of
    it. `ignore`: path prefixes to pass over, by the key of the resource that is given as `key`.

    Example:
        >>> for node in diff({"spec": {"replicas": 2}}, {"spec": {"replicas": 3, "x": None}}):
        ...     print(node.path, node.old, node.new)
        spec.replicas 2 3
        spec.x MISSING None
        >>> diff({"port": 80, "status": "ok"}, {"port": "80"},
        ...      numeric_strings=True, ignore_adding_map_keys=True)
        []
    """
    rules = _Rules(
        equate_empty=equate_empty,
        ignore_adding_map_keys=ignore_adding_map_keys,
        numeric_strings=numeric_strings,
        bool_strings=bool_strings,
    )
    prefixes = tuple((ignore or {}).get(key, ()))
    found = [
        node
        for node in _nodes((), old, new, rules)
        if not any(node.is_under(prefix) for prefix in prefixes)
    ]
    return sorted(found, key=lambda node: node.path)


def _nodes(keys: tuple[str | int, ...], old: Any, new: Any, rules: _Rules) -> Iterator[Node]:
    if rules.equate_empty and (
        (_is_nothing(old) and _is_empty(new)) or (_is_nothing(new) and _is_empty(old))
    ):
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old.keys() | new.keys():
            if rules.ignore_adding_map_keys and key not in new:
                continue
            yield from _nodes(
                (*keys, str(key)), old.get(key, MISSING), new.get(key, MISSING), rules
            )
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            yield from _nodes(
                (*keys, index),
                old[index] if index < len(old) else MISSING,
                new[index] if index < len(new) else MISSING,
                rules,
            )
    elif not _is_same(old, new, rules):
        path = ".".join(map(str, keys))
        yield Node(path=path, keys=keys, old=old, new=new)


def _is_nothing(value: Any) -> bool:
    return value is MISSING or value is None


def _is_empty(value: Any) -> bool:
    return _is_nothing(value) or (
        not value and isinstance(value, Mapping | list | str | int | float)
    )


def _is_same(old: Any, new: Any, rules: _Rules) -> bool:
    if _is_number(old) and _is_number(new):
        return float(old) == float(new)
    if rules.numeric_strings and (_is_number(old) or _is_number(new)):
        first, second = _as_number(old), _as_number(new)
        if first is not None and second is not None:
            return first == second
    if rules.bool_strings and isinstance(old, bool) != isinstance(new, bool):
        return _as_word(old) == _as_word(new)
    return type(old) is type(new) and bool(old == new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_number(value: Any) -> float | None:
    if not (_is_number(value) or isinstance(value, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _as_word(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


def render(nodes: Iterable[Node], *, mask: str = "") -> str:
    """Returns differences in the outline of the tree: old values with `-`, new ones with `+`.

    Values at and below the path `mask` are shown as stars.

    Example:
        >>> old = {"spec": {"replicas": 2, "ports": [{"port": 80}]}}
        >>> new = {"spec": {"replicas": 3, "ports": [{"port": 81}]}}
        >>> print(render(diff(old, new)), end="")
          spec:
            ports:
              -
                #spec.ports.0.port
        -       port: 80
        +       port: 81
        <BLANKLINE>
            #spec.replicas
        -   replicas: 2
        +   replicas: 3
        <BLANKLINE>
    """
    lines: list[str] = []
    open_keys: tuple[str | int, ...] = ()
    for node in nodes:
        parent = node.keys[:-1]
        shared = _count_shared(open_keys, parent)
        for depth in range(shared, len(parent)):
            key = parent[depth]
            lines.append(f"  {'  ' * depth}{'-' if isinstance(key, int) else f'{key}:'}")
        open_keys = parent
        indent = "  " * len(parent)
        lines.append(f"  {indent}#{node.path}")
        is_masked = bool(mask) and node.is_under(mask)
        for sign, value in (("-", node.old), ("+", node.new)):
            if value is not MISSING:
                lines += _value_lines(sign, indent, node.keys, MASK if is_masked else value)
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


def _count_shared(first: tuple[str | int, ...], second: tuple[str | int, ...]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _value_lines(sign: str, indent: str, keys: tuple[str | int, ...], value: Any) -> list[str]:
    if not keys:
        shown = _dump(value)
    elif isinstance(keys[-1], int):
        shown = _dump([value])
    else:
        shown = _dump({keys[-1]: value})
    return [f"{sign} {indent}{line}" for line in shown.removesuffix("...\n").splitlines()]


def _dump(value: Any) -> str:
    from pipecd_sdk.kit import yaml  # noqa: PLC0415 - a plugin that waits needs no parser

    return yaml.dump(value)


def format_unified(old: Any, new: Any, *, context: int = 3) -> str:
    """Returns the patch between the YAML texts of two trees, without the lines that name files.

    Example:
        >>> print(format_unified({"a": 1, "b": 2}, {"a": 1, "b": 3}), end="")
        @@ -1,2 +1,2 @@
         a: 1
        -b: 2
        +b: 3
    """
    before = [] if old is MISSING else _dump(old).splitlines(keepends=True)
    after = [] if new is MISSING else _dump(new).splitlines(keepends=True)
    return "".join(list(difflib.unified_diff(before, after, n=context))[2:])
