# SPDX-License-Identifier: Apache-2.0
"""How large an event may be; the control plane refuses larger ones.

Lint, the agent and the control plane ask the same numbers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

NAME_CHARACTERS: Final = 500
LABELS: Final = 64
LABEL_CHARACTERS: Final = 500
"""Of a key, and of a value."""
DATA_CHARACTERS: Final = 64 * 1024


def list_event_faults(name: str, data: str, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields what is too large of an event: the field, and what is wrong with it."""
    if len(name) > NAME_CHARACTERS:
        yield "name", _describe(len(name), NAME_CHARACTERS)
    if len(data) > DATA_CHARACTERS:
        yield "data", _describe(len(data), DATA_CHARACTERS)
    if len(labels) > LABELS:
        yield "labels", f"has {len(labels)} of them, at most {LABELS}"
    for key, value in labels.items():
        if len(key) > LABEL_CHARACTERS:
            yield "labels", f"the key {key[:40]!r} {_describe(len(key), LABEL_CHARACTERS)}"
        if len(value) > LABEL_CHARACTERS:
            said = _describe(len(value), LABEL_CHARACTERS)
            yield "labels", f"the value of {key[:40]!r} {said}"


def _describe(length: int, most: int) -> str:
    return f"has {length} characters, at most {most}"
