# SPDX-License-Identifier: Apache-2.0
"""How large and how slow calls over gRPC may be."""

from typing import Final, NamedTuple

MAX_MESSAGE: Final = 10 * 1024 * 1024


def message_limits(size: int) -> tuple[tuple[str, int], ...]:
    """Returns the options for both directions. Pass them once: gRPC uses the first of two."""
    return (
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
    )


class CallLimits(NamedTuple):
    """Limits for callers; None is no limit of ours."""

    max_message: int = MAX_MESSAGE
    max_header_bytes: int | None = None
    max_header_fields: int | None = None
    max_streams_per_connection: int | None = None
    max_calls: int | None = None
    """Calls that are handled at the same time, of all callers."""
    read_seconds: float | None = None
    """How long a request may take to arrive, from its headers to its end."""
    answer_seconds: float | None = None
    """How long a caller may take to read one message of a response."""
    idle_seconds: float | None = None
    """How long a connection may be without any call."""

    window_bytes: int | None = None
    """How much of a request may arrive before it is read."""

    def options(self) -> tuple[tuple[str, int], ...]:
        """Returns the channel options for the limits that gRPC itself enforces."""
        given: list[tuple[str, int]] = [*message_limits(self.max_message)]
        if self.max_header_bytes is not None:
            # Between its soft and its hard limit gRPC refuses by chance: so both are the same.
            given.append(("grpc.max_metadata_size", self.max_header_bytes))
            given.append(("grpc.absolute_max_metadata_size", self.max_header_bytes))
        if self.max_streams_per_connection is not None:
            given.append(("grpc.max_concurrent_streams", self.max_streams_per_connection))
            # Otherwise gRPC also counts calls that have ended but whose memory is not freed yet,
            # and refuses calls of clients that keep to the limit. Floods of resets are bounded
            # by the front (`max_control_frames`), open calls in all by `max_calls`.
            given.append(("grpc.http.overload_protection", 0))
        if self.window_bytes is not None:
            # Otherwise 4 MiB, or what a measurement of the connection finds. A message that is
            # being read is let in whole in any case.
            given.append(("grpc.http2.lookahead_bytes", self.window_bytes))
            given.append(("grpc.http2.bdp_probe", 0))
        if self.idle_seconds is not None:
            given.append(("grpc.max_connection_idle_ms", round(self.idle_seconds * 1000)))
        return tuple(given)
