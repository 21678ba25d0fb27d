# SPDX-License-Identifier: Apache-2.0
"""Every rule of the wire table at its edge: up to it a message passes, past it the field is named.

Messages are built from the table's rules, not from our options, so that a rule that did not make it
into our protos is noticed.
"""

import importlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory

import pipecd_wire
from pipecd_wire.rpc.validation import Violation, check

PACKAGES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("wire.json").read_text())[
    "packages"
]
FIELDS: dict[str, dict[str, dict[str, Any]]] = {
    f"{package}.{message}": fields
    for package, held in PACKAGES.items()
    for message, fields in held["messages"].items()
}
ENUMS: dict[str, list[int]] = {
    f"{package}.{enum}": list(values.values())
    for package, held in PACKAGES.items()
    for enum, values in held["enums"].items()
}
RULES = [
    pytest.param(message, name, rule, id=f"{message}.{name}: {rule}")
    for message, fields in FIELDS.items()
    for name, field in fields.items()
    for rule in field.get("rule", {})
]

# What a pattern lets through and what not; a new pattern in the table needs its line here.
PATTERNS = {
    "^[^/].+$": (["ab", "a/b", ".."], ["", "a", "/a", "/", "ab\n"]),
    "^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$": (
        ["a", "Z9", "a-b-0"],
        ["", "-a", "a-", "a--b", "a_b", "a\n"],
    ),
}
SMALLEST_FLOAT = 2.0**-149


def test_every_rule_of_the_table_is_tried() -> None:
    ruled = {tuple(rule.values[:2]) for rule in RULES}

    assert len(ruled) == 443
    assert len(RULES) == 449


@pytest.mark.parametrize(("message", "name", "rule"), RULES)
def test_a_rule_lets_its_edge_pass_and_refuses_what_is_past_it(
    message: str, name: str, rule: str
) -> None:
    within, past = edges(FIELDS[message][name], rule)

    for value in within:
        assert check(valid(message, {name: value})) is None
    for value in past:
        violation = check(valid(message, {name: value}))
        assert violation is not None, f"{value!r} passed"
        assert violation.field == name or violation.field.startswith(f"{name}[")
        assert rule_of(violation) == rule


def rule_of(violation: Violation) -> str:
    """The rule's name, which stands last, before its limit: `must be … (int64.gt 0)`."""
    return re.split(r"[ )]", violation.rule.rpartition("(")[2])[0]


def edges(field: dict[str, Any], rule: str) -> tuple[list[Any], list[Any]]:
    """Values of a field that just keep a rule, and values that just break it."""
    rules, type_ = field["rule"], field["type"]
    limit = rules[rule]
    match rule.split("."):
        case ["message", "required"]:
            return [valid(type_)], [None]
        case ["repeated", "min_items"]:
            return [items(field, limit)], [items(field, limit - 1)]
        case ["repeated", "max_items"]:
            return [items(field, limit)], [items(field, limit + 1)]
        case ["repeated", "items", *inner]:
            item_type, item_rules = type_.removeprefix("repeated "), below(rules, "repeated.items.")
            within, past = value_edges(item_type, item_rules, ".".join(inner))
            return [[value] for value in within], [[within[0], value] for value in past]
        case ["map", "min_pairs"]:
            return [pairs(field, limit)], [pairs(field, limit - 1)]
        case ["map", "keys", *inner]:
            key_type, value_type = map_types(type_)
            value = valid_value(value_type, below(rules, "map.values."))
            within, past = value_edges(key_type, below(rules, "map.keys."), ".".join(inner))
            return [{key: value} for key in within], [{key: value} for key in past]
        case ["map", "values", *inner]:
            key_type, value_type = map_types(type_)
            key = valid_value(key_type, below(rules, "map.keys."))
            within, past = value_edges(value_type, below(rules, "map.values."), ".".join(inner))
            return [{key: value} for value in within], [{key: value} for value in past]
        case _:
            return value_edges(type_, rules, rule)


def value_edges(type_: str, rules: dict[str, Any], rule: str) -> tuple[list[Any], list[Any]]:
    """The edges of one rule that keep the others beside it."""
    limit = rules[rule]
    match rule:
        case "string.min_len":
            # Two bytes each, if it may be: a rule that counted bytes would let the short one pass.
            letter = "a" if "string.pattern" in rules else "ä"
            return [letter * limit], [letter * (limit - 1)]
        case "string.pattern":
            within, past = PATTERNS[limit]
            return within, [text for text in past if len(text) >= rules.get("string.min_len", 0)]
        case "string.prefix":
            return [limit, limit + "1"], ["", limit[:-1], limit.upper(), "1" + limit]
        case "string.in":
            return limit, ["", limit[0].lower(), limit[0] + "x"]
        case "enum.defined_only":
            named = ENUMS[type_]
            gaps = set(range(max(named))) - set(named)
            return named, [-1, max(named) + 1, *gaps]
        case "enum.in":
            return limit, [number for number in ENUMS[type_] if number not in limit]
        case "int32.gte" | "int64.gte":
            return [limit, limit + 1], [limit - 1]
        case "int64.gt":
            return [limit + 1], [limit, limit - 1]
        case "float.gt":
            return [limit + SMALLEST_FLOAT], [limit, limit - SMALLEST_FLOAT, float("nan")]
    raise LookupError(f"no edges known for the rule {rule!r}")


def valid(message: str, changed: dict[str, Any] | None = None) -> Any:
    """The smallest message that keeps its rules, but for what is `changed`; None leaves out."""
    fields = {
        name: valid_field(field) for name, field in FIELDS[message].items() if "rule" in field
    } | (changed or {})
    return our_class(message)(
        **{name: value for name, value in fields.items() if value is not None}
    )


def valid_field(field: dict[str, Any]) -> Any:
    rules = field["rule"]
    if field["type"].startswith("repeated "):
        return items(field, rules.get("repeated.min_items", 0))
    if field["type"].startswith("map<"):
        return pairs(field, rules.get("map.min_pairs", 0))
    return valid_value(field["type"], rules)


def valid_value(type_: str, rules: dict[str, Any]) -> Any:
    if type_ in FIELDS:
        return valid(type_)
    if rules:
        return value_edges(type_, rules, next(iter(rules)))[0][0]
    return {"string": "text"}.get(type_, 0)


def items(field: dict[str, Any], count: int) -> list[Any]:
    inner = below(field["rule"], "repeated.items.")
    return [valid_value(field["type"].removeprefix("repeated "), inner) for _ in range(count)]


def pairs(field: dict[str, Any], count: int) -> dict[str, Any]:
    _, value_type = map_types(field["type"])
    value = valid_value(value_type, below(field["rule"], "map.values."))
    return {f"key{number}": value for number in range(count)}


def below(rules: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        rule.removeprefix(prefix): limit for rule, limit in rules.items() if rule.startswith(prefix)
    }


def map_types(type_: str) -> list[str]:
    return type_.removeprefix("map<").removesuffix(">").split(", ")


@cache
def our_class(name: str) -> Any:
    folder = Path(pipecd_wire.__path__[0])
    for path in folder.rglob("*_pb2.py"):
        importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
    descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    return message_factory.GetMessageClass(descriptor)
