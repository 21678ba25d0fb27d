# SPDX-License-Identifier: Apache-2.0
"""The bytes of gRPC-Web: length-prefixed frames, their base64 form, trailers and timeouts.

Pure functions for `web`, which knows when to read and when to write.
"""

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
_TIMEOUT: Final = re.compile(r"(?P<amount>[0-9]{1,8})(?P<unit>[HMSmun])")
_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def frame(payload: bytes, flag: int = MESSAGE) -> bytes:
    return HEADER.pack(flag, len(payload)) + payload


def trailers(status: str, message: str) -> bytes:
    """Returns the frame that ends every response: the status, and the message of a refusal."""
    lines = [f"grpc-status:{CODES[status].value[0]}\r\n"]
    if message:
        lines.append(f"grpc-message:{urllib.parse.quote(message, safe=_PLAIN)}\r\n")
    return frame("".join(lines).encode("ascii"), TRAILERS)


def only_message(body: bytes, *, limit: int) -> bytes:
    """Returns the payload of the one frame of a request. Raises StatusError for anything else."""
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
    """Raises StatusError for a message over the limit, with the text that gRPC uses."""
    if size > limit:
        raise StatusError("RESOURCE_EXHAUSTED", f"message larger than max ({size} vs. {limit})")


class TextDecoder:
    """Decodes the base64 of a `-text` request as it arrives.

    Each chunk that a caller has sent may have its own padding, so that a body is made of several
    pieces; their number is limited, because each costs as much as kilobytes do.
    """

    MOST_PIECES: Final = 4096

    def __init__(self) -> None:
        self._rest = b""
        self._pieces = 0

    def decode(self, chunk: bytes) -> bytes:
        """Returns the bytes that are complete. Raises StatusError for what is no base64."""
        data = self._rest + chunk.translate(None, b" \t\r\n\v\f")
        decoded: list[bytes] = []
        start = 0
        while (padding := data.find(b"=", start)) >= 0:
            end = padding + 4 - (padding - start) % 4
            if (padding - start) % 4 < 2:
                raise _not_base64()
            if end > len(data):
                break
            self._pieces += 1
            if self._pieces > self.MOST_PIECES:
                raise StatusError(
                    "INVALID_ARGUMENT", "invalid request: its base64 has too many padded pieces"
                )
            decoded.append(_decode(data[start:end]))
            start = end
        unpadded = (len(data) if padding < 0 else padding) - start
        whole = start + unpadded // 4 * 4
        decoded.append(_decode(data[start:whole]))
        self._rest = data[whole:]
        return b"".join(decoded)

    def finish(self) -> None:
        """Raises StatusError when the text has ended within a group of four."""
        if self._rest:
            raise _not_base64()


def _decode(text: bytes) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        raise _not_base64() from None


def _not_base64() -> StatusError:
    return StatusError("INVALID_ARGUMENT", "invalid request: it is not base64")


class RequestReader:
    """Assembles the one message of a request from chunks; raises StatusError for a bad one.

    It holds no more than the longest message that is allowed.
    """

    def __init__(self, *, limit: int, in_text: bool) -> None:
        self._limit = limit
        self._longest = limit + HEADER.size
        self._longest_raw = (self._longest + 2) // 3 * 4 if in_text else self._longest
        self._text = TextDecoder() if in_text else None
        self._raw = 0
        self._body = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._raw += len(chunk)
        check_size(self._raw, limit=self._longest_raw)
        self._body += chunk if self._text is None else self._text.decode(chunk)
        check_size(len(self._body), limit=self._longest)
        if len(self._body) >= HEADER.size:
            flag, length = HEADER.unpack_from(self._body)
            if flag == MESSAGE:
                check_size(length, limit=self._limit)

    def finish(self) -> bytes:
        """Returns the bytes of the message. Raises StatusError when it is not complete."""
        if self._text is not None:
            self._text.finish()
        return only_message(bytes(self._body), limit=self._limit)


def seconds(timeout: str) -> float:
    """Returns the seconds of a `grpc-timeout` header such as `1500m`. Raises StatusError."""
    match = _TIMEOUT.fullmatch(timeout)
    if match is None:
        raise StatusError(
            "INVALID_ARGUMENT", f"invalid grpc-timeout {timeout[:20]!r} (e.g. 5S, 1500m)"
        )
    return int(match["amount"]) * _SECONDS[match["unit"]]
