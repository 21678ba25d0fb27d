# SPDX-License-Identifier: Apache-2.0
"""The rules of field options, each as a test and as the sentence that a caller reads.

Read once per message type by `validation`, which decides where the tests are applied.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from pipecd_wire.options import rules_pb2

KINDS: Final = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_MESSAGE: "message",
}


Test = Callable[[Any], Any]
"""Returns something true when the value keeps the rule.

Where it can be it is a method of a built-in type, which costs no Python frame.
"""


class Rule(NamedTuple):
    test: Test
    text: str
    """What the value must be, and the rule's name as the wire table spells it."""


def read_field_rules(field: FieldDescriptor) -> rules_pb2.FieldRules:
    """Returns the rules declared for a field, empty when there are none."""
    rules = field.GetOptions().Extensions[rules_pb2.rules]
    if (entry := map_entry(field)) is not None:
        _refuse_others("map", field, rules)
        _refuse_others(_kind(entry.fields_by_name["key"]), field, rules.map.keys)
        _refuse_others(_kind(entry.fields_by_name["value"]), field, rules.map.values)
    elif field.is_repeated:
        _refuse_others("repeated", field, rules)
        _refuse_others(_kind(field), field, rules.repeated.items)
    else:
        _refuse_others(_kind(field), field, rules)
    return rules


def map_entry(field: FieldDescriptor) -> Descriptor | None:
    """Returns the type of a map's pairs, None when the field is no map."""
    entry = field.message_type
    return entry if entry is not None and entry.GetOptions().map_entry else None


def iter_value_rules(
    field: FieldDescriptor, rules: rules_pb2.FieldRules, prefix: str = ""
) -> Iterator[Rule]:
    """Yields the rules of one value; `prefix` says of which, when it is in a list or a map."""
    match _kind(field):
        case "string":
            yield from _iter_string_rules(rules.string, f"{prefix}string")
        case "enum":
            yield from _iter_enum_rules(
                cast(EnumDescriptor, field.enum_type), rules.enum, f"{prefix}enum"
            )
        case "int32" | "int64" as kind:
            limits: Any = getattr(rules, kind)
            yield from _iter_lower_bounds(limits, f"{prefix}{kind}")
            if limits.HasField("gte"):
                least = limits.gte
                yield Rule(least.__le__, f"must be at least {least} ({prefix}{kind}.gte {least})")
        case "float":
            yield from _iter_lower_bounds(rules.float, f"{prefix}float")


def iter_length_rules(rules: rules_pb2.RepeatedRules) -> Iterator[Rule]:
    """Yields the rules of a list's length."""
    if rules.HasField("min_items"):
        yield _make_minimum(rules.min_items, "item(s)", "repeated.min_items")
    if rules.HasField("max_items"):
        most = rules.max_items
        text = f"must have at most {most} item(s) (repeated.max_items {most})"
        yield Rule(lambda items: len(items) <= most, text)


def iter_size_rules(rules: rules_pb2.MapRules) -> Iterator[Rule]:
    """Yields the rules of a map's size."""
    if rules.HasField("min_pairs"):
        yield _make_minimum(rules.min_pairs, "pair(s)", "map.min_pairs")


def _iter_string_rules(rules: rules_pb2.StringRules, name: str) -> Iterator[Rule]:
    if rules.HasField("min_len"):
        yield _make_minimum(rules.min_len, "character(s)", f"{name}.min_len")
    if rules.HasField("pattern"):
        text = f"must match {rules.pattern!r} ({name}.pattern)"
        yield Rule(_re2(rules.pattern).search, text)
    if rules.HasField("prefix"):
        start = rules.prefix
        text = f"must start with {start!r} ({name}.prefix)"
        yield Rule(lambda value: value.startswith(start), text)
    if allowed := getattr(rules, "in"):
        text = f"must be one of {', '.join(map(repr, allowed))} ({name}.in)"
        yield Rule(frozenset(allowed).__contains__, text)


def _iter_enum_rules(enum: EnumDescriptor, rules: rules_pb2.EnumRules, name: str) -> Iterator[Rule]:
    values = enum.values_by_number
    if rules.defined_only:
        text = f"must be a value of {enum.name} ({name}.defined_only)"
        yield Rule(frozenset(values).__contains__, text)
    if allowed := getattr(rules, "in"):
        text = f"must be one of {', '.join(values[number].name for number in allowed)} ({name}.in)"
        yield Rule(frozenset(allowed).__contains__, text)


def _iter_lower_bounds(limits: Any, name: str) -> Iterator[Rule]:
    if limits.HasField("gt"):
        limit = limits.gt
        yield Rule(limit.__lt__, f"must be greater than {limit} ({name}.gt {limit})")


def _make_minimum(least: int, what: str, name: str) -> Rule:
    text = f"must have at least {least} {what} ({name} {least})"
    return Rule(bool if least == 1 else lambda value: len(value) >= least, text)


def _re2(pattern: str) -> re.Pattern[str]:
    r"""Compiles a pattern as RE2 reads it: `$` is the very end, `\d` and `\w` are ASCII.

    Python's own `$` would let a trailing newline pass.
    """
    pieces = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<end>\$)", re.DOTALL)
    translated = pieces.sub(lambda piece: r"\Z" if piece["end"] else piece[0], pattern)
    return re.compile(translated, re.ASCII)


def _kind(field: FieldDescriptor) -> str:
    return KINDS.get(field.type, "no rules")


def _refuse_others(kind: str, field: FieldDescriptor, rules: rules_pb2.FieldRules) -> None:
    """Raises TypeError for a rule of another kind, which would never be checked."""
    for declared, _ in rules.ListFields():
        if declared.name != kind:
            raise TypeError(f"{field.full_name} cannot have rules of the kind {declared.name!r}")
