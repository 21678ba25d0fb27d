# SPDX-License-Identifier: Apache-2.0
"""Messages as programs read them: upstream's JSON, with states by name beside their numbers.

Upstream's pipectl prints Go's plain JSON, whose enums are numbers and whose zero values are left
out. Its fields stay as they are; what is a state also stands there by name, as `status_name`. In
messages that only we have, a state is its name.
"""

import json
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pipecd_model import gojson
from pipecd_runtime.terminal import make_printable

STATES: Final = frozenset({"status", "state", "health_status"})
PREFIXES: Final = ("DEPLOYMENT_CHAIN_", "DEPLOYMENT_BLOCK_", "DEPLOYMENT_", "STAGE_", "COMMAND_")
OURS: Final = "pipecd."


def to_data(message: Message) -> dict[str, Any]:
    """Returns a message as a JSON object with the names of its states."""
    value = gojson.to_value(message)
    _add_names(message, value)
    return value


def dump_json(value: Any) -> str:
    """Returns indented JSON. Keys stay in their order."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def dump_yaml(value: Any) -> str:
    """Returns YAML. Where a text holds controls, everything but ASCII is escaped."""
    import yaml  # noqa: PLC0415 - a large import for a format that is seldom asked for

    text: str = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    if make_printable(text) != text:
        text = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=False)
    return text


def name_state(enum: Any, number: int) -> str:
    """Returns the name of a state as flags take it: `SUCCESS`; the number of an unknown one."""
    found = enum.values_by_number.get(number)
    if found is None:
        return str(number)
    for prefix in PREFIXES:
        if found.name.startswith(prefix):
            return str(found.name.removeprefix(prefix))
    return str(found.name)


def _add_names(message: Message, value: dict[str, Any]) -> None:
    descriptor = message.DESCRIPTOR
    is_ours = descriptor.file.package.startswith(OURS)
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_ENUM and field.name in STATES:
            name = name_state(field.enum_type, getattr(message, field.name))
            value[field.name if is_ours else f"{field.name}_name"] = name
        elif field.type == FieldDescriptor.TYPE_MESSAGE and field.name in value:
            _add_names_below(field, getattr(message, field.name), value[field.name])


def _add_names_below(field: Any, child: Any, value: Any) -> None:
    if field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_MESSAGE:
            for key in child:
                _add_names(child[key], value[str(key)])
    elif field.is_repeated:
        for each, shown in zip(child, value, strict=True):
            _add_names(each, shown)
    else:
        _add_names(child, value)
