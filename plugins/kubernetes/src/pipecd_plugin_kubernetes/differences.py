# SPDX-License-Identifier: Apache-2.0
"""Where an object differs from its manifest, field by field, and what people are shown of it. Pure.

Values of Secrets never leave this module; those of ConfigMaps only where the caller shows them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final

from pipecd_plugin_kubernetes.fields import shorten
from pipecd_plugin_kubernetes.manifest import ResourceKey
from pipecd_sdk.kit.diff import MASK, MISSING, Node, diff, render
from pipecd_sdk.kit.text import make_printable

LONGEST_VALUE: Final = 2_000
"""Characters of one value that are shown."""
_SECRET_PARTS: Final = ("data", "stringData", "metadata.annotations")
_CONFIG_MAP_PARTS: Final = ("data", "binaryData")
_ITEM_KEYS: Final = ("name", "key", "mountPath", "containerPort", "port", "ip", "devicePath")
"""What tells items of a list apart, in the lists of the API that are merged item by item."""
_QUANTITY: Final = re.compile(
    r"([+-]?[0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})"
)
_UNITS: Final = {
    **{unit: Decimal(10) ** power for unit, power in (("n", -9), ("u", -6), ("m", -3), ("", 0))},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


class DriftChange(Enum):
    """What bringing the cluster to git would do to an object."""

    DELETE = "delete"
    ADD = "add"
    CHANGE = "change"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDifference:
    """One object that is not as git has it."""

    key: ResourceKey
    change: DriftChange
    nodes: Sequence[Node] = ()
    """Where it differs; values that must not be seen are masked already."""
    notes: Sequence[str] = field(default=())
    """Sentences about it."""


def compare_exactly(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Node]:
    """Returns where an object would change, from what the server says it would become."""
    return diff(live, wanted, equate_empty=True)


def compare_structurally(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Node]:
    """Returns where an object differs from a manifest, without the help of the server.

    What only the object has is left alone: fields, and items of lists whose items have names. Such
    lists are compared by those names, whatever their order. Quantities are compared as numbers.
    """
    found = diff(
        _align(live, wanted),
        wanted,
        equate_empty=True,
        ignore_adding_map_keys=True,
        numeric_strings=True,
    )
    return [node for node in found if not _is_same_quantity(node.old, node.new)]


def _align(live: Any, wanted: Any) -> Any:
    """Returns the live value with its lists in the order of the wanted ones."""
    if isinstance(live, Mapping) and isinstance(wanted, Mapping):
        return {
            key: _align(value, wanted[key]) if key in wanted else value
            for key, value in live.items()
        }
    if isinstance(live, list) and isinstance(wanted, list):
        name = _find_item_key(live, wanted)
        if name is None:
            return [
                _align(item, wanted[index]) if index < len(wanted) else item
                for index, item in enumerate(live)
            ]
        there = {item[name]: item for item in live}
        return [
            _align(there[item[name]], item) if item[name] in there else MISSING for item in wanted
        ]
    return live


def _find_item_key(live: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    for name in _ITEM_KEYS:
        if live and wanted and all(_has_names(items, name) for items in (live, wanted)):
            return name
    return None


def _has_names(items: Sequence[Any], name: str) -> bool:
    names = [item.get(name) if isinstance(item, Mapping) else None for item in items]
    if not all(isinstance(each, str | int) for each in names):
        return False
    return len(set(names)) == len(names)


def _is_same_quantity(old: Any, new: Any) -> bool:
    first, second = _read_quantity(old), _read_quantity(new)
    return first is not None and first == second


def _read_quantity(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    found = _QUANTITY.fullmatch(str(value)[:64])
    if found is None:
        return None
    number, unit = found.groups()
    try:
        if unit[:1] in {"e", "E"} and len(unit) > 1:
            return Decimal(f"{number}{unit}")
        return Decimal(number) * _UNITS[unit]
    except (InvalidOperation, KeyError):
        return None


def hide_values(nodes: Iterable[Node], key: ResourceKey, *, config_maps: bool) -> list[Node]:
    """Returns the nodes with values masked that must not be seen: those of Secrets always.

    Annotations of a Secret are masked too: tools keep whole manifests there. `config_maps` masks
    the values of a ConfigMap as well.
    """
    parts: Sequence[str] = ()
    if (key.group, key.kind) == ("", "Secret"):
        parts = _SECRET_PARTS
    elif config_maps and (key.group, key.kind) == ("", "ConfigMap"):
        parts = _CONFIG_MAP_PARTS
    return [_hide(node, parts) for node in nodes]


def _hide(node: Node, parts: Sequence[str]) -> Node:
    is_hidden = any(
        node.is_under(part) or part.startswith(f"{node.path}.") or not node.path for part in parts
    )
    if is_hidden:
        return replace(node, old=_mask(node.old), new=_mask(node.new))
    return replace(node, old=_shorten_value(node.old), new=_shorten_value(node.new))


def _mask(value: Any) -> Any:
    return value if value is MISSING else MASK


def _shorten_value(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return f"{value[:LONGEST_VALUE]}… ({len(value)} characters)"
    return value


def drop_fields(nodes: Iterable[Node], paths: Collection[str]) -> list[Node]:
    """Returns the nodes that are not at or below one of the paths."""
    return [node for node in nodes if not any(node.is_under(path) for path in paths)]


def format_counts(differences: Sequence[ObjectDifference], words: Mapping[DriftChange, str]) -> str:
    """Returns how many there are of each, e.g. `1 changed, 2 not in git`."""
    counts = [
        (sum(each.change is change for each in differences), word) for change, word in words.items()
    ]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def format_heading(
    number: int, difference: ObjectDifference, words: Mapping[DriftChange, str]
) -> str:
    """Returns the line that names an object and what it is about."""
    key = difference.key
    parts = [f"name={key.name!r}", f"kind={key.kind!r}"]
    if key.namespace:
        parts.append(f"namespace={key.namespace!r}")
    parts.append(f"apiGroup={key.group!r}")
    return f"# {number}. {words[difference.change]}: {', '.join(parts)}\n"


def format_notes(difference: ObjectDifference) -> str:
    """Returns the sentences about an object, as comments."""
    return "".join(f"# {shorten(note)}\n" for note in difference.notes)


def format_nodes(nodes: Iterable[Node]) -> str:
    """Returns differences in the outline of the object, safe for a terminal."""
    return make_printable(render(nodes))
