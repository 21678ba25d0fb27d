# SPDX-License-Identifier: Apache-2.0
"""Messages of a peer that knows only the table arrive in our classes unchanged, and go back so.

The peer's classes are made from the table alone. It is also newer than we are: each of its messages
has one field more, which must survive the way through us at any depth.
"""

import importlib
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pipecd_wire

PACKAGES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("wire.json").read_text())[
    "packages"
]
FIELDS: dict[str, dict[str, str]] = {
    f"{package}.{message}": {name: field["type"] for name, field in fields.items()}
    for package, held in PACKAGES.items()
    for message, fields in held["messages"].items()
} | {"google.protobuf.BoolValue": {"value": "bool"}}
ENUMS: dict[str, list[int]] = {
    f"{package}.{enum}": list(values.values())
    for package, held in PACKAGES.items()
    for enum, values in held["enums"].items()
}
MESSAGES = [name for name in FIELDS if not name.startswith("google.")]

LATER, LATER_NUMBER = "added_later", 60_000

INTEGERS = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
}
TEXTS = ["", "plain", "Grüße, 世界 \N{ROCKET}", "\0\n\"'", "\N{COMBINING ACUTE ACCENT}" * 3]
EXTREMES: dict[str, list[Any]] = {
    "bool": [True, False],
    "bytes": [b"", b"\0\xff\x80", "ß".encode(), bytes(range(256))],
    "float": [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 2.0**-149],
    "string": TEXTS,
}
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "bytes": st.binary(max_size=20),
    "float": st.floats(width=32),
    "string": st.text(max_size=10) | st.sampled_from(TEXTS),
}
for kind, (low, high) in INTEGERS.items():
    EXTREMES[kind] = [0, 1, low, high]
    SCALARS[kind] = st.integers(low, high)

PROPERTY = settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("name", MESSAGES)
@PROPERTY
@given(data=st.data())
def test_a_random_message_of_a_peer_goes_through_our_class_unchanged(
    name: str, data: st.DataObject
) -> None:
    assert_goes_through(name, data.draw(peers(name)))


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_with_every_field_set_goes_through_our_class_unchanged(name: str) -> None:
    """Chance may leave a field out; this does not."""
    for turn in range(7):
        message = filled(name, turn, depth=3)
        wanted = {field for field, type_ in FIELDS[name].items() if is_seen(type_, turn)}

        assert {field.name for field, _ in message.ListFields()} >= wanted
        assert_goes_through(name, message)


def assert_goes_through(name: str, sent: Message) -> None:
    received = our_class(name).FromString(sent.SerializeToString())
    assert values_of(received) == without_later(values_of(sent))

    returned = type(sent).FromString(received.SerializeToString())
    assert values_of(returned) == values_of(sent)


# The peer: its classes, from the table alone.


@cache
def pool() -> descriptor_pool.DescriptorPool:
    made = descriptor_pool.DescriptorPool()
    made.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    files = {package: file_of(package) for package in PACKAGES}
    added: set[str] = set()

    def add(package: str) -> None:
        if package in added:
            return
        added.add(package)
        for needed in files[package].dependency:
            if needed in files:
                add(needed)
        made.AddSerializedFile(files[package].SerializeToString())

    for package in files:
        add(package)
    return made


def file_of(package: str) -> descriptor_pb2.FileDescriptorProto:
    """A package of the table as one file, named like the package."""
    held = PACKAGES[package]
    file = descriptor_pb2.FileDescriptorProto(name=package, package=package, syntax="proto3")
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    needed: set[str] = set()
    # Sorted, so that a message comes before those nested in it.
    for name in sorted(held["messages"]):
        outer, _, inner = name.rpartition(".")
        message = messages[outer].nested_type.add() if outer else file.message_type.add()
        messages[name] = message
        message.name = inner
        for field_name, field in held["messages"][name].items():
            add_field(message, f"{package}.{name}", field_name, field["no"], field["type"])
            needed |= {
                other
                for other in [*PACKAGES, "google.protobuf"]
                if any(known.startswith(other + ".") for known in types_in(field["type"]))
            }
        add_field(message, f"{package}.{name}", LATER, LATER_NUMBER, "string")
    for name, values in held["enums"].items():
        outer, _, inner = name.rpartition(".")
        enum = messages[outer].enum_type.add() if outer else file.enum_type.add()
        enum.name = inner
        for value_name, number in values.items():
            enum.value.add(name=value_name, number=number)
    file.dependency.extend(
        wrappers_pb2.DESCRIPTOR.name if other == "google.protobuf" else other
        for other in sorted(needed - {package})
    )
    return file


def types_in(type_: str) -> list[str]:
    if (key_value := split_map(type_)) is not None:
        return list(key_value)
    return [type_.removeprefix("repeated ")]


def split_map(type_: str) -> tuple[str, str] | None:
    if not type_.startswith("map<"):
        return None
    key, value = type_.removeprefix("map<").removesuffix(">").split(", ")
    return key, value


def add_field(
    message: descriptor_pb2.DescriptorProto, full_name: str, name: str, number: int, type_: str
) -> None:
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if (key_value := split_map(type_)) is not None:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        add_field(entry, "", "key", 1, key_value[0])
        add_field(entry, "", "value", 2, key_value[1])
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type, field.type_name = (
            FieldDescriptorProto.TYPE_MESSAGE,
            f".{full_name}.{entry.name}",
        )
        return
    if type_.startswith("repeated "):
        field.label = FieldDescriptorProto.LABEL_REPEATED
        type_ = type_.removeprefix("repeated ")
    if type_ in FIELDS:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{type_}"
    elif type_ in ENUMS:
        field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, f".{type_}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{type_.upper()}")


@cache
def peer_class(name: str) -> type[Message]:
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(name))


@cache
def our_class(name: str) -> type[Message]:
    folder = Path(pipecd_wire.__path__[0])
    for path in folder.rglob("*_pb2.py"):
        importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
    descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    return message_factory.GetMessageClass(descriptor)


# Messages of the peer.


@cache
def peers(name: str, depth: int = 2) -> st.SearchStrategy[Message]:
    """Any message of a type; below `depth` messages it holds no more of them."""
    optional = {
        field: values_for(type_, depth)
        for field, type_ in FIELDS[name].items()
        if depth or not any(part in FIELDS for part in types_in(type_))
    }
    if name in MESSAGES:
        optional[LATER] = SCALARS["string"]
    return st.fixed_dictionaries({}, optional=optional).map(lambda given: peer_class(name)(**given))


def values_for(type_: str, depth: int) -> st.SearchStrategy[Any]:
    if (key_value := split_map(type_)) is not None:
        return st.dictionaries(SCALARS[key_value[0]], values_for(key_value[1], depth), max_size=3)
    if type_.startswith("repeated "):
        return st.lists(values_for(type_.removeprefix("repeated "), depth), max_size=3)
    if type_ in FIELDS:
        return peers(type_, depth - 1)
    if type_ in ENUMS:
        return st.sampled_from(ENUMS[type_]) | st.integers(*INTEGERS["int32"])
    return SCALARS[type_]


def filled(name: str, turn: int, depth: int) -> Message:
    """A message with all its fields set; each turn takes other extreme values."""
    fields = {field: extreme(type_, turn, depth) for field, type_ in FIELDS[name].items()}
    later = {LATER: "later"} if name in MESSAGES else {}
    held = {field: value for field, value in fields.items() if value is not None}
    return peer_class(name)(**held, **later)


def extreme(type_: str, turn: int, depth: int) -> Any:
    if (key_value := split_map(type_)) is not None:
        value = extreme(key_value[1], turn, depth)
        return None if value is None else {extreme(key_value[0], turn, depth): value}
    if type_.startswith("repeated "):
        item = extreme(type_.removeprefix("repeated "), turn, depth)
        return None if item is None else [item, item]
    if type_ in FIELDS:
        return filled(type_, turn, depth - 1) if depth else None
    if type_ in ENUMS:
        unknown = [max(ENUMS[type_]) + 1, -1, *INTEGERS["int32"]]
        return [*ENUMS[type_], *unknown][turn % (len(ENUMS[type_]) + len(unknown))]
    return EXTREMES[type_][turn % len(EXTREMES[type_])]


def is_seen(type_: str, turn: int) -> bool:
    """Is a field set on the wire? A scalar that was set to its default is not."""
    whole = type_.startswith(("repeated ", "map<")) or type_ in FIELDS
    return whole or bool(extreme(type_, turn, depth=0))


# Comparing classes of two pools.


def values_of(message: Message) -> dict[str, Any]:
    return {field.name: value_of(field, value) for field, value in message.ListFields()}


def value_of(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        held = field.message_type.fields_by_name["value"]
        return {key: single(held, value[key]) for key in value}
    if field.is_repeated:
        return [single(field, item) for item in value]
    return single(field, value)


def single(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return values_of(value)
    if field.type == field.TYPE_FLOAT:
        return struct.pack(
            "<f", value
        )  # by its bits: NaN is not equal to itself, and -0.0 is to 0.0
    return (type(value), value)


def without_later(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: without_later(value) for key, value in values.items() if key != LATER}
    if isinstance(values, list):
        return [without_later(value) for value in values]
    return values
