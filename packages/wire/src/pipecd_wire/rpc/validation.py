# SPDX-License-Identifier: Apache-2.0
"""Validates messages against the rules that their protos declare.

A server does so between authentication and the handler; the rules are the field options
`(pipecd.options.rules)`. It runs on every call, so each message type is read once into a plan: a
list of the values that have a rule, each with its test, and of the messages below that have rules.
A type without any rule costs one lookup.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pipecd_wire.options import rules_pb2
from pipecd_wire.rpc import rules
from pipecd_wire.rpc.rules import Rule, Test

LONGEST_KEY = 40


class Violation(NamedTuple):
    """A rule that a message breaks, and where: `git_path.repo.id`, `blocks[3].index`."""

    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}"

    def add_parent(self, parent: str) -> "Violation":
        return Violation(field=f"{parent}.{self.field}", rule=self.rule)


Getter = Callable[[Any], Any]
Check = Callable[[Any], Violation | None]
"""Checks one field of a message for which a test of the value is not enough."""


class ValidationPlan:
    """All checks for messages of one type.

    It is filled after it is made, because a message type may hold itself.
    """

    __slots__ = ("parts", "values")

    def __init__(self) -> None:
        self.values: list[tuple[Getter, Test, Violation]] = []
        self.parts: list[Check] = []

    def violation(self, message: Any) -> Violation | None:
        for get, test, violation in self.values:
            if not test(get(message)):
                return violation
        for part in self.parts:
            if (found := part(message)) is not None:
                return found
        return None

    def passes(self, messages: list[Any]) -> bool:
        """Returns whether all messages are valid; checks value by value, which is faster."""
        for get, test, _ in self.values:
            if not all(map(test, map(get, messages))):
                return False
        return all(part(message) is None for part in self.parts for message in messages)


# By descriptor and not by name, because two pools may hold different types of one name.
_plans: dict[Descriptor, ValidationPlan | None] = {}


def check(message: Message) -> Violation | None:
    """Returns the first violation in `message` or in a message that it holds, or None.

    Of each message its own values are checked first, then the messages in it.
    """
    descriptor: Any = message.DESCRIPTOR
    try:
        plan = _plans[descriptor]
    except KeyError:
        plan = _learn(descriptor)
    return plan.violation(message) if plan is not None else None


def _learn(descriptor: Descriptor) -> ValidationPlan | None:
    """Returns the plan of a message type, and caches it with those of the types below it.

    They are cached together once all are complete: another thread never finds a half-filled one.
    """
    learned: dict[Descriptor, ValidationPlan | None] = {}
    plan = _read(descriptor, learned)
    _plans.update(learned)
    return plan


def _read(
    descriptor: Descriptor, learned: dict[Descriptor, ValidationPlan | None]
) -> ValidationPlan | None:
    if descriptor in learned:
        return learned[descriptor]
    if not _has_rules(descriptor):
        learned[descriptor] = None
        return None
    plan = learned[descriptor] = ValidationPlan()
    for field in descriptor.fields:
        name, declared, held = field.name, rules.read_field_rules(field), _find_held_type(field)
        below = _read(held, learned) if held is not None else None
        simple: Iterable[Rule] = ()
        if (entry := rules.map_entry(field)) is not None:
            simple = rules.iter_size_rules(declared.map)
            plan.parts += _iter_map_checks(name, entry, declared.map, below)
        elif field.is_repeated:
            simple = rules.iter_length_rules(declared.repeated)
            plan.parts += _iter_list_checks(field, declared.repeated, below)
        elif held is not None:
            plan.parts += _iter_message_checks(name, declared.message.required, below)
        elif field.has_presence:
            plan.parts += [
                partial(_if_set, name, rule) for rule in rules.iter_value_rules(field, declared)
            ]
        else:
            simple = rules.iter_value_rules(field, declared)
        plan.values += [
            (attrgetter(name), rule.test, Violation(field=name, rule=rule.text)) for rule in simple
        ]
    return plan


def _find_held_type(field: FieldDescriptor) -> Descriptor | None:
    """Returns the message type that a field holds, for a map that of its values."""
    if (entry := rules.map_entry(field)) is not None:
        return entry.fields_by_name["value"].message_type
    return field.message_type


def _has_rules(root: Descriptor) -> bool:
    """Returns whether this message type, or one below it, has a rule."""
    seen, waiting = {root}, [root]
    while waiting:
        for field in waiting.pop().fields:
            if field.GetOptions().HasExtension(rules_pb2.rules):
                return True
            if (held := _find_held_type(field)) is not None and held not in seen:
                seen.add(held)
                waiting.append(held)
    return False


def _if_set(name: str, rule: Rule, message: Any) -> Violation | None:
    """Checks a value that is `optional` or in a oneof, when it is there."""
    if not message.HasField(name) or rule.test(getattr(message, name)):
        return None
    return Violation(field=name, rule=rule.text)


def _iter_message_checks(
    name: str, required: bool, below: ValidationPlan | None
) -> Iterator[Check]:
    missing = Violation(field=name, rule="must be set (message.required)") if required else None

    def part(message: Any) -> Violation | None:
        if not message.HasField(name):
            return missing
        if below is not None:
            found = below.violation(getattr(message, name))
            if found is not None:
                return found.add_parent(name)
        return None

    if required or below is not None:
        yield part


def _iter_list_checks(
    field: FieldDescriptor, declared: rules_pb2.RepeatedRules, below: ValidationPlan | None
) -> Iterator[Check]:
    for rule in rules.iter_value_rules(field, declared.items, "repeated.items."):
        yield partial(_items, field.name, rule)
    if below is not None:
        yield partial(_item_messages, field.name, below)


def _items(name: str, rule: Rule, message: Any) -> Violation | None:
    for index, item in enumerate(getattr(message, name)):
        if not rule.test(item):
            return Violation(field=f"{name}[{index}]", rule=rule.text)
    return None


def _item_messages(name: str, below: ValidationPlan, message: Any) -> Violation | None:
    items = list(getattr(message, name))
    if below.passes(items):
        return None
    return _first(below, ((f"{name}[{index}]", item) for index, item in enumerate(items)))


def _iter_map_checks(
    name: str, entry: Descriptor, declared: rules_pb2.MapRules, below: ValidationPlan | None
) -> Iterator[Check]:
    for rule in rules.iter_value_rules(entry.fields_by_name["key"], declared.keys, "map.keys."):
        yield partial(_keys, name, rule)
    for rule in rules.iter_value_rules(
        entry.fields_by_name["value"], declared.values, "map.values."
    ):
        yield partial(_values, name, rule)
    if below is not None:
        yield partial(_value_messages, name, below)


def _keys(name: str, rule: Rule, message: Any) -> Violation | None:
    for key in getattr(message, name):
        if not rule.test(key):
            return Violation(field=_format_key(name, key), rule=f"key {rule.text}")
    return None


def _values(name: str, rule: Rule, message: Any) -> Violation | None:
    for key, value in getattr(message, name).items():
        if not rule.test(value):
            return Violation(field=_format_key(name, key), rule=rule.text)
    return None


def _value_messages(name: str, below: ValidationPlan, message: Any) -> Violation | None:
    held = getattr(message, name)
    if below.passes(list(held.values())):
        return None
    return _first(below, ((_format_key(name, key), value) for key, value in held.items()))


def _first(plan: ValidationPlan, messages: Iterable[tuple[str, Any]]) -> Violation | None:
    for place, message in messages:
        if (found := plan.violation(message)) is not None:
            return found.add_parent(place)
    return None


def _format_key(name: str, key: object) -> str:
    """Returns the path of a map entry; a long key is cut, as a status message has a limit."""
    return f"{name}[{key[:LONGEST_KEY]!r}]" if isinstance(key, str) else f"{name}[{key!r}]"
