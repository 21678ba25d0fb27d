# SPDX-License-Identifier: Apache-2.0
"""Our protos are the wire table, entry by entry: nothing missing, nothing added, nothing moved.

Our generated descriptors are written in the form of the table, and the two are compared.
"""

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

import pipecd_wire
from pipecd_wire.options import rules_pb2

TABLE = json.loads(Path(__file__).with_name("wire.json").read_text())
PACKAGES: dict[str, dict[str, Any]] = TABLE["packages"]


def test_the_table_says_how_much_it_holds() -> None:
    """So that a table cut short does not pass as a short protocol."""
    assert TABLE["totals"] == {"rpcs": 131, "messages": 374, "fields": 949, "enums": 37}
    assert size(PACKAGES) == TABLE["totals"]


def test_our_protos_hold_exactly_as_much() -> None:
    assert size({name: ours()[name] for name in PACKAGES}) == TABLE["totals"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_the_tables_messages_and_no_other(package: str) -> None:
    assert ours()[package]["messages"].keys() == PACKAGES[package]["messages"].keys()


@pytest.mark.parametrize(
    ("package", "message"),
    [(package, message) for package, held in PACKAGES.items() for message in held["messages"]],
)
def test_a_message_has_the_tables_fields_and_no_other(package: str, message: str) -> None:
    """Names, numbers, types, labels, maps, deprecations and rules at once."""
    assert ours()[package]["messages"][message] == PACKAGES[package]["messages"][message]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("section", ["enums", "services", "reserved"])
def test_a_package_has_the_tables(section: str, package: str) -> None:
    assert ours()[package][section] == PACKAGES[package].get(section, {})


@cache
def ours() -> dict[str, dict[str, Any]]:
    """What our generated code says, in the form of the table."""
    folder = Path(pipecd_wire.__path__[0])
    packages: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("*_pb2.py")):
        module = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        file = descriptor_pb2.FileDescriptorProto()
        importlib.import_module(module).DESCRIPTOR.CopyToProto(file)
        assert file.syntax == "proto3", f"{file.name} is not proto3"
        package = packages.setdefault(
            file.package, {"messages": {}, "enums": {}, "services": {}, "reserved": {}}
        )
        for message in file.message_type:
            add_message(package, message, message.name)
        for enum in file.enum_type:
            add_enum(package, enum, enum.name)
        for service in file.service:
            package["services"][service.name] = {
                method.name: [
                    "stream " * method.client_streaming + method.input_type.removeprefix("."),
                    "stream " * method.server_streaming + method.output_type.removeprefix("."),
                ]
                for method in service.method
            }
    return packages


def add_message(
    package: dict[str, Any], message: descriptor_pb2.DescriptorProto, name: str
) -> None:
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    package["messages"][name] = {field.name: describe(field, entries) for field in message.field}
    numbers = [[reserved.start, reserved.end - 1] for reserved in message.reserved_range]
    add_reserved(package, name, numbers, list(message.reserved_name))
    for nested in message.nested_type:
        if not nested.options.map_entry:
            add_message(package, nested, f"{name}.{nested.name}")
    for enum in message.enum_type:
        add_enum(package, enum, f"{name}.{enum.name}")


def add_enum(package: dict[str, Any], enum: descriptor_pb2.EnumDescriptorProto, name: str) -> None:
    package["enums"][name] = {value.name: value.number for value in enum.value}
    # Of an enum the end is reserved too, other than of a message.
    numbers = [[reserved.start, reserved.end] for reserved in enum.reserved_range]
    add_reserved(package, f"enum {name}", numbers, list(enum.reserved_name))


def add_reserved(
    package: dict[str, Any], name: str, numbers: list[list[int]], names: list[str]
) -> None:
    if numbers or names:
        package["reserved"][name] = {"numbers": numbers, "names": names}


def describe(
    field: FieldDescriptorProto, entries: dict[str, descriptor_pb2.DescriptorProto]
) -> dict[str, Any]:
    described: dict[str, Any] = {"no": field.number}
    if entry := entries.get(field.type_name.rpartition(".")[2]):
        key, value = entry.field
        described["type"] = f"map<{type_of(key)}, {type_of(value)}>"
    else:
        repeated = "repeated " * (field.label == FieldDescriptorProto.LABEL_REPEATED)
        described["type"] = repeated + type_of(field)
    if field.HasField("oneof_index"):
        described["oneof"] = field.oneof_index
    for option, value in field.options.ListFields():
        if option.full_name == rules_pb2.rules.full_name:
            described["rule"] = flat(value)
        else:
            described[option.name] = value
    return described


def type_of(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return field.type_name.removeprefix(".")
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def flat(rules: Message, prefix: str = "") -> dict[str, Any]:
    flattened: dict[str, Any] = {}
    for part, value in rules.ListFields():
        if isinstance(value, Message):
            flattened |= flat(value, f"{prefix}{part.name}.")
        else:
            flattened[prefix + part.name] = list(value) if part.is_repeated else value
    return flattened


def size(packages: dict[str, dict[str, Any]]) -> dict[str, int]:
    held = packages.values()
    messages = [fields for package in held for fields in package["messages"].values()]
    services = [methods for package in held for methods in package["services"].values()]
    return {
        "rpcs": sum(map(len, services)),
        "messages": len(messages),
        "fields": sum(map(len, messages)),
        "enums": sum(len(package["enums"]) for package in held),
    }
