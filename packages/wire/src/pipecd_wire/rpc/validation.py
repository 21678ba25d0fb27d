# SPDX-License-Identifier: Apache-2.0
"""Does a message keep the rules that its proto declares?

The server asks between authentication and the handler; the rules are the field options
`(pipecd.options.rules)`. It runs on every call, so each message type is read once. What is kept is
one getter of all values that have a rule, a test for each, and the way down to the messages below
that have rules. A type without any costs one lookup.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pipecd_wire.options import rules_pb2
from pipecd_wire.rpc import rules
from pipecd_wire.rpc.rules import Rule

LONGEST_KEY = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a message breaks, and where: `git_path.repo.id`, `blocks[3].index`."""

    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}"

    def below(self, parent: str) -> "Violation":
        return Violation(field=f"{parent}.{self.field}", rule=self.rule)


def check(message: Message) -> Violation | None:
    """The first violation in `message` or in a message that it holds; None when all is well.

    Of each message its own values are looked at first, then the messages in it.
    """
    descriptor: Any = message.DESCRIPTOR
    try:
        checker = _checkers[descriptor]
    except KeyError:
        checker = _learn(descriptor)
    return checker.first_violation(message) if checker is not None else None


Part = Callable[[Any], Violation | None]
"""Looks at one field of a message for which a test of the value is not enough."""


class Checker:
    """All that has to be looked at in messages of one type."""

    __slots__ = ("_getter", "_parts", "_tests")

    def __init__(self) -> None:
        """Empty, to be filled: a message type may hold itself."""
        self._getter: Callable[[Any], Iterable[Any]] | None = None
        self._tests: tuple[tuple[Callable[[Any], Any], Violation], ...] = ()
        self._parts: tuple[Part, ...] = ()

    def fill(self, values: Iterable[tuple[str, Rule]], parts: Iterable[Part]) -> None:
        names = [name for name, _ in values]
        if names:
            # For one name the getter would answer the bare value; a second makes it a tuple too.
            self._getter = attrgetter(*names, names[0])
        self._tests = tuple(
            (rule.test, Violation(field=name, rule=rule.text)) for name, rule in values
        )
        self._parts = tuple(parts)

    def first_violation(self, message: Any) -> Violation | None:
        if self._getter is not None:
            for (test, violation), value in zip(self._tests, self._getter(message), strict=False):
                if not test(value):
                    return violation
        for part in self._parts:
            if (found := part(message)) is not None:
                return found
        return None


# By descriptor and not by name, because two pools may hold different types of one name.
_checkers: dict[Descriptor, Checker | None] = {}


def _learn(descriptor: Descriptor) -> Checker | None:
    """Read a message type and those below it.

    They are published together when all are whole: another thread never finds a half-filled one.
    """
    learned: dict[Descriptor, Checker | None] = {}
    checker = _read(descriptor, learned)
    _checkers.update(learned)
    return checker


def _read(descriptor: Descriptor, learned: dict[Descriptor, Checker | None]) -> Checker | None:
    if descriptor in learned:
        return learned[descriptor]
    if not _has_rules(descriptor):
        learned[descriptor] = None
        return None
    checker = learned[descriptor] = Checker()
    values: list[tuple[str, Rule]] = []
    parts: list[Part] = []
    for field in descriptor.fields:
        name, declared, held = field.name, rules.of_field(field), _held(field)
        below = _read(held, learned) if held is not None else None
        if (entry := rules.map_entry(field)) is not None:
            values += [(name, rule) for rule in rules.of_pairs(declared.map)]
            parts += _of_map(name, entry, declared.map, below)
        elif field.is_repeated:
            values += [(name, rule) for rule in rules.of_items(declared.repeated)]
            parts += _of_list(field, declared.repeated, below)
        elif held is not None:
            parts += _of_message(name, declared.message.required, below)
        elif field.has_presence:
            parts += [partial(_if_set, name, rule) for rule in rules.of_value(field, declared)]
        else:
            values += [(name, rule) for rule in rules.of_value(field, declared)]
    checker.fill(values, parts)
    return checker


def _held(field: FieldDescriptor) -> Descriptor | None:
    """The message type that a field holds; for a map that of its values."""
    if (entry := rules.map_entry(field)) is not None:
        return entry.fields_by_name["value"].message_type
    return field.message_type


def _has_rules(root: Descriptor) -> bool:
    """Has this message type a rule, or one of those below it?"""
    seen, waiting = {root}, [root]
    while waiting:
        for field in waiting.pop().fields:
            if field.GetOptions().HasExtension(rules_pb2.rules):
                return True
            if (held := _held(field)) is not None and held not in seen:
                seen.add(held)
                waiting.append(held)
    return False


def _if_set(name: str, rule: Rule, message: Any) -> Violation | None:
    """A value that is `optional` or in a oneof: the rule holds when it is there."""
    if not message.HasField(name) or rule.test(getattr(message, name)):
        return None
    return Violation(field=name, rule=rule.text)


def _of_message(name: str, required: bool, below: Checker | None) -> Iterator[Part]:
    missing = Violation(field=name, rule="must be set (message.required)") if required else None

    def part(message: Any) -> Violation | None:
        if not message.HasField(name):
            return missing
        if below is not None:
            found = below.first_violation(getattr(message, name))
            if found is not None:
                return found.below(name)
        return None

    if required or below is not None:
        yield part


def _of_list(
    field: FieldDescriptor, declared: rules_pb2.RepeatedRules, below: Checker | None
) -> Iterator[Part]:
    for rule in rules.of_value(field, declared.items, "repeated.items."):
        yield partial(_items, field.name, rule)
    if below is not None:
        yield partial(_item_messages, field.name, below.first_violation)


def _items(name: str, rule: Rule, message: Any) -> Violation | None:
    for index, item in enumerate(getattr(message, name)):
        if not rule.test(item):
            return Violation(field=f"{name}[{index}]", rule=rule.text)
    return None


def _item_messages(name: str, first_violation: Part, message: Any) -> Violation | None:
    for index, item in enumerate(getattr(message, name)):
        if (found := first_violation(item)) is not None:
            return found.below(f"{name}[{index}]")
    return None


def _of_map(
    name: str, entry: Descriptor, declared: rules_pb2.MapRules, below: Checker | None
) -> Iterator[Part]:
    for rule in rules.of_value(entry.fields_by_name["key"], declared.keys, "map.keys."):
        yield partial(_keys, name, rule)
    for rule in rules.of_value(entry.fields_by_name["value"], declared.values, "map.values."):
        yield partial(_values, name, rule)
    if below is not None:
        yield partial(_value_messages, name, below.first_violation)


def _keys(name: str, rule: Rule, message: Any) -> Violation | None:
    for key in getattr(message, name):
        if not rule.test(key):
            return Violation(field=_at(name, key), rule=f"key {rule.text}")
    return None


def _values(name: str, rule: Rule, message: Any) -> Violation | None:
    for key, value in getattr(message, name).items():
        if not rule.test(value):
            return Violation(field=_at(name, key), rule=rule.text)
    return None


def _value_messages(name: str, first_violation: Part, message: Any) -> Violation | None:
    for key, value in getattr(message, name).items():
        if (found := first_violation(value)) is not None:
            return found.below(_at(name, key))
    return None


def _at(name: str, key: object) -> str:
    """Cut short: this goes into a status message, which has a limit, and the caller chose the key."""
    return f"{name}[{key[:LONGEST_KEY]!r}]" if isinstance(key, str) else f"{name}[{key!r}]"
