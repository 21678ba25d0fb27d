# SPDX-License-Identifier: Apache-2.0
"""The bytes of gRPC-Web: length-prefixed frames, their base64 form, trailers and timeouts.

Pure functions for `web`, which knows when to read and when to write.
"""

import base64
import binascii
import re
import struct
import urllib.parse
from typing import Final

from pipecd_wire.rpc.status import CODES, StatusError

HEADER: Final = struct.Struct(">BI")

MESSAGE: Final = 0x00
COMPRESSED: Final = 0x01
TRAILERS: Final = 0x80

# Printable ASCII without the percent sign travels as it is (gRPC over HTTP/2, "Status-Message").
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_SEGMENT: Final = re.compile(rb"[^=]+={0,2}")
_TIMEOUT: Final = re.compile(r"(?P<amount>[0-9]{1,8})(?P<unit>[HMSmun])")
_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def frame(payload: bytes, flag: int = MESSAGE) -> bytes:
    return HEADER.pack(flag, len(payload)) + payload


def trailers(status: str, message: str) -> bytes:
    """The frame that ends every answer: the status, and the sentence of a refusal."""
    lines = [f"grpc-status:{CODES[status].value[0]}\r\n"]
    if message:
        lines.append(f"grpc-message:{urllib.parse.quote(message, safe=_PLAIN)}\r\n")
    return frame("".join(lines).encode("ascii"), TRAILERS)


def only_message(body: bytes, *, limit: int) -> bytes:
    """The payload of the one frame that a request has; StatusError when it is anything else."""
    if len(body) < HEADER.size:
        raise StatusError("UNIMPLEMENTED", "a request must be exactly one message, this has none")
    flag, length = HEADER.unpack_from(body)
    if flag == COMPRESSED:
        raise StatusError("UNIMPLEMENTED", "a compressed request cannot be read")
    if flag != MESSAGE:
        raise StatusError("INVALID_ARGUMENT", f"invalid request: unknown frame flag {flag:#04x}")
    check_size(length, limit=limit)
    payload = body[HEADER.size : HEADER.size + length]
    if len(payload) < length:
        raise StatusError("INVALID_ARGUMENT", "invalid request: it ends within a frame")
    if len(body) > HEADER.size + length:
        raise StatusError("UNIMPLEMENTED", "a request must be exactly one message, this has more")
    return payload


def check_size(size: int, *, limit: int) -> None:
    """Refuse a message over the limit in the words that gRPC itself uses."""
    if size > limit:
        raise StatusError("RESOURCE_EXHAUSTED", f"message larger than max ({size} vs. {limit})")


def from_text(body: bytes) -> bytes:
    """Decode the base64 of a `-text` request; each chunk that was sent may have its own padding."""
    try:
        return b"".join(
            base64.b64decode(segment, validate=True)
            for segment in _SEGMENT.findall(b"".join(body.split()))
        )
    except binascii.Error:
        raise StatusError("INVALID_ARGUMENT", "invalid request: it is not base64") from None


def seconds(timeout: str) -> float:
    """Read a `grpc-timeout` header such as `1500m`."""
    match = _TIMEOUT.fullmatch(timeout)
    if match is None:
        raise StatusError(
            "INVALID_ARGUMENT", f"invalid grpc-timeout {timeout[:20]!r} (e.g. 5S, 1500m)"
        )
    return int(match["amount"]) * _SECONDS[match["unit"]]
