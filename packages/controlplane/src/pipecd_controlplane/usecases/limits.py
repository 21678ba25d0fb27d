# SPDX-License-Identifier: Apache-2.0
"""Size limits for what people and programs write. What is too large is refused, never truncated.

Reports of agents are limited by the size of a message; entities that grow with each report are
limited here, because they must still fit into one message when they are read.
"""

from collections.abc import Mapping
from typing import Final

from google.protobuf.message import Message

from pipecd_model import event_limits
from pipecd_model.errors import ConfigError

NAME: Final = event_limits.NAME_CHARACTERS
DESCRIPTION: Final = 64 * 1024
LABELS: Final = event_limits.LABELS
LABEL: Final = event_limits.LABEL_CHARACTERS
EVENT_DATA: Final = event_limits.DATA_CHARACTERS
CONTEXT: Final = 4 * 1024
COMMIT_MESSAGE: Final = 64 * 1024
TARGETS: Final = 200

DEPLOYMENT_BYTES: Final = 8 * 1024 * 1024
"""An agent accepts messages of 10 MiB: a larger deployment could never be listed to it."""
SHARED_OBJECT_BYTES: Final = 8 * 1024 * 1024
LIVE_STATE_BYTES: Final = 8 * 1024 * 1024


def text(field: str, value: str, most: int) -> None:
    """Raises ConfigError when the text is longer than `most` characters."""
    if len(value) > most:
        raise ConfigError(f"invalid request: {field}: {len(value)} characters, at most {most}")


def name(field: str, value: str) -> None:
    """Raises ConfigError for a name that is blank, or too long."""
    if not value.strip():
        raise ConfigError(f"invalid request: {field}: must not be empty")
    text(field, value, NAME)


def labels(field: str, values: Mapping[str, str], *, most: int = LABEL) -> None:
    """Raises ConfigError for too many labels, or too long ones."""
    if len(values) > LABELS:
        raise ConfigError(f"invalid request: {field}: {len(values)} of them, at most {LABELS}")
    for key, value in values.items():
        text(f"{field}: the key {key[:40]!r}", key, LABEL)
        text(f"{field}: the value of {key[:40]!r}", value, most)


def size(noun: str, message: Message, most: int) -> None:
    """Raises ConfigError when the message has more than `most` bytes."""
    if message.ByteSize() > most:
        raise ConfigError(
            f"invalid request: the {noun} would have {message.ByteSize()} bytes, at most {most}"
        )
