# SPDX-License-Identifier: Apache-2.0
"""Functions that turn a value into another form: base64, base32, hashes, JSON."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Final

from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.functions.jsontext import from_json, to_json
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.kinds import to_bytes, to_text

_BASE64: Final = re.compile(rb"[A-Za-z0-9+/\r\n]*")
_BASE32: Final = re.compile(rb"[A-Z2-7\r\n]*")


def _wrong_byte(
    content: bytes, letters: re.Pattern[bytes], group: int, padded: frozenset[int]
) -> int | None:
    """Return where a text stops to be one of an encoding; None if it is one.

    `padded` are the numbers of letters after which a group may be filled up.
    """
    good = letters.match(content)
    rest = good.end() if good else 0
    before = content[:rest]
    count = (rest - before.count(b"\n") - before.count(b"\r")) % group  # letters of the last group
    fill = 0
    for index, byte in enumerate(memoryview(content)[rest:], rest):
        if byte in b"\r\n":
            continue
        if byte != _FILL or (not fill and count not in padded):
            return index - 1 if 0 < fill < group - count else index
        fill += 1
        if count + fill > group:
            return index
    if not fill:
        return len(content) - count if count else None
    return None if count + fill == group else len(content)


_FILL: Final = ord("=")


def _b64dec(value: str) -> str:
    content = to_bytes(value)
    wrong = _wrong_byte(content, _BASE64, 4, frozenset({2, 3}))
    if wrong is not None:
        return f"illegal base64 data at input byte {wrong}"
    return to_text(base64.b64decode(content))


def _b32dec(value: str) -> str:
    content = to_bytes(value)
    wrong = _wrong_byte(content, _BASE32, 8, frozenset({2, 4, 5, 7}))
    if wrong is not None:
        return f"illegal base32 data at input byte {wrong}"
    return to_text(base64.b32decode(content.translate(None, b"\r\n")))


def _hash(made: Callable[[bytes], str]) -> Function:
    return declare("s", lambda value: made(to_bytes(value)))


def _json(*, escapes_html: bool = True, indents: bool = False, fails: bool = False) -> Function:
    def write(value: object) -> str:
        try:
            return to_json(value, escapes_html=escapes_html, indents=indents)
        except ValueError:
            if fails:
                raise FunctionError("this value cannot be JSON") from None
            return ""

    return declare("a", write)


def _from_json(value: str) -> object:
    try:
        return from_json(value)
    except (ValueError, RecursionError):
        return None


def _must_from_json(value: str) -> object:
    try:
        return from_json(value)
    except (ValueError, RecursionError):
        raise FunctionError("this is no JSON") from None


FORMS: Final[Mapping[str, Function]] = {
    "b64enc": _hash(lambda content: base64.b64encode(content).decode()),
    "b64dec": declare("s", _b64dec),
    "b32enc": _hash(lambda content: base64.b32encode(content).decode()),
    "b32dec": declare("s", _b32dec),
    "adler32sum": _hash(lambda content: str(zlib.adler32(content))),
    "sha1sum": _hash(lambda content: hashlib.sha1(content, usedforsecurity=False).hexdigest()),
    "sha256sum": _hash(lambda content: hashlib.sha256(content).hexdigest()),
    "sha512sum": _hash(lambda content: hashlib.sha512(content).hexdigest()),
    "fromJson": declare("s", _from_json),
    "mustFromJson": declare("s", _must_from_json),
    "toJson": _json(),
    "mustToJson": _json(fails=True),
    "toPrettyJson": _json(indents=True),
    "mustToPrettyJson": _json(indents=True, fails=True),
    "toRawJson": _json(escapes_html=False, fails=True),
    "mustToRawJson": _json(escapes_html=False, fails=True),
}
