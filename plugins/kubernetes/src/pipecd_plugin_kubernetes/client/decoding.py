# SPDX-License-Identifier: Apache-2.0
"""Bodies of answers as plain dicts, or as the slim structs of those who keep many."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Generic

import msgspec

from pipecd_plugin_kubernetes.client.errors import ApiError
from pipecd_plugin_kubernetes.client.refusals import clean_message
from pipecd_plugin_kubernetes.client.resources import Object, T


class PageMetadata(msgspec.Struct, rename="camel"):
    """What is said about a page of a list."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[T]):
    """A page of a list."""

    metadata: PageMetadata = msgspec.field(default_factory=PageMetadata)
    items: list[T] | None = None


class Envelope(msgspec.Struct):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class _ObjectVersion(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class Head(msgspec.Struct):
    """The version of an object, whatever else it holds."""

    metadata: _ObjectVersion = msgspec.field(default_factory=_ObjectVersion)


_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUES: Final = msgspec.json.Decoder()


@lru_cache(maxsize=64)
def make_decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """Returns the decoder of a type; made once for each."""
    return msgspec.json.Decoder(kind)


@lru_cache(maxsize=64)
def make_page_decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """Returns the decoder of lists of a type."""
    return msgspec.json.Decoder(ListPage[kind])


def decode_object(what: str, body: bytes) -> Object:
    """Returns the object of an answer. Raises ApiError when it is none."""
    found = decode_body(what, body, make_decoder(dict[str, Any]))
    assert isinstance(found, dict), "the decoder's type"  # noqa: S101
    return found


def decode_slim(raw: bytes | memoryview | msgspec.Raw) -> Object:
    """Returns an object without its managed fields. Raises msgspec.DecodeError.

    They are the larger part of most objects, and nobody needs them who looks at many.
    """
    parts = _PARTS.decode(raw)
    try:
        inner = _PARTS.decode(parts["metadata"])
    except (KeyError, msgspec.ValidationError):
        return {name: _VALUES.decode(part) for name, part in parts.items()}
    inner.pop("managedFields", None)
    body = {name: _VALUES.decode(part) for name, part in parts.items() if name != "metadata"}
    body["metadata"] = {name: _VALUES.decode(part) for name, part in inner.items()}
    return body


def decode_body(what: str, body: bytes | memoryview, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """Returns what an answer holds. Raises ApiError when it has another shape."""
    return decode_with(what, body, decoder.decode)


def decode_with(what: str, body: bytes | memoryview, decode: Callable[[Any], Any]) -> Any:
    """Returns what a function makes of an answer. Raises ApiError when it has another shape."""
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(
            f"cannot {what}: the answer is not what the API gives: {clean_message(str(error), 200)}"
        ) from None


def encode_body(what: str, body: object) -> bytes:
    """Returns JSON. Raises ApiError for what JSON cannot say."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ApiError(
            f"cannot {what}: it cannot be written as JSON: {clean_message(str(error), 200)}"
        ) from None
