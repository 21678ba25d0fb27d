# SPDX-License-Identifier: Apache-2.0
"""Functions between texts and bytes, for values that are no UTF-8: keys, archives, images.

In Go a text is any bytes. Here bytes that are no UTF-8 travel as Python's `surrogateescape` and
come out of a template as they went in.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Final

from gotpl.funcs.sprig import text_func_map

_SPRIG = text_func_map()
_ESCAPED: Final = "surrogateescape"


def _bytes(text: str) -> bytes:
    return text.encode(errors=_ESCAPED)


def _b64enc(value: str) -> str:
    return base64.b64encode(_bytes(value)).decode()


def _b32enc(value: str) -> str:
    return base64.b32encode(_bytes(value)).decode()


def _b64dec(value: str) -> str:
    read = str(_SPRIG["b64dec"](value))  # sprig gives its complaint as the text, and so do we
    if "\ufffd" not in read:
        return read
    return base64.b64decode(value.replace("\r", "").replace("\n", "")).decode(errors=_ESCAPED)


def _b32dec(value: str) -> str:
    read = str(_SPRIG["b32dec"](value))
    if "\ufffd" not in read:
        return read
    return base64.b32decode(value.replace("\r", "").replace("\n", "")).decode(errors=_ESCAPED)


def _sha1sum(value: str) -> str:
    return hashlib.sha1(_bytes(value), usedforsecurity=False).hexdigest()


def _sha256sum(value: str) -> str:
    return hashlib.sha256(_bytes(value)).hexdigest()


def _sha512sum(value: str) -> str:
    return hashlib.sha512(_bytes(value)).hexdigest()


def _adler32sum(value: str) -> str:
    return str(zlib.adler32(_bytes(value)))


ENCODINGS: Final[Mapping[str, Callable[..., object]]] = {
    "adler32sum": _adler32sum,
    "b32dec": _b32dec,
    "b32enc": _b32enc,
    "b64dec": _b64dec,
    "b64enc": _b64enc,
    "sha1sum": _sha1sum,
    "sha256sum": _sha256sum,
    "sha512sum": _sha512sum,
}
