# SPDX-License-Identifier: Apache-2.0
"""Messages as the Go implementation's plain JSON, which pipectl prints and command outputs hold.

Names as in the protos, zero values dropped, enums and 64-bit numbers as numbers, bytes as base64,
map keys sorted. It is not protobuf's own JSON.
"""

import base64
import json
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def to_value(message: Message) -> dict[str, Any]:
    """A message as a JSON object."""
    return {field.name: _field(field, value) for field, value in message.ListFields()}


def dumps(value: Any) -> str:
    """One line of JSON, escaped as Go escapes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _field(field: FieldDescriptor, value: Any) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        of = entry.fields_by_name["value"]
        return {str(key): _scalar(of, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_scalar(field, item) for item in value]
    return _scalar(field, value)


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return to_value(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode()
    return value
