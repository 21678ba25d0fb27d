# SPDX-License-Identifier: Apache-2.0
"""The file of a script's output: frames of a kind, a time and bytes, one after the other.

Both outputs of a script are one stream: their order is worth more than which was which. One writer
decides where a line without an end is shown, so that every reader cuts the same lines at the same
places; a line is known by its place in the file.
"""

OUTPUT = b"o"
CUT = b"c"
"""The line so far was shown, although its end has not come: it may be a question."""
NOTE = b"n"
"""A sentence of the shim."""
SHELL_ENDED = b"x"
"""The shell has ended; its children may still write."""

HEADER = 13
LONGEST = 64 * 1024


def frame(kind: bytes, at_us: int, data: bytes = b"") -> bytes:
    """Returns one frame: its kind, time and length, then the data."""
    return kind + at_us.to_bytes(8, "big") + len(data).to_bytes(4, "big") + data


def header_of(data: bytes, start: int) -> tuple[bytes, int, int]:
    """Kind, time in microseconds, and length of the frame that begins at `start`."""
    return (
        data[start : start + 1],
        int.from_bytes(data[start + 1 : start + 9], "big"),
        int.from_bytes(data[start + 9 : start + HEADER], "big"),
    )
