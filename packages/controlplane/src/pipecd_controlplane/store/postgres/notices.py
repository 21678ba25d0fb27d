# SPDX-License-Identifier: Apache-2.0
"""What control planes send each other by NOTIFY: ids only, each payload under the server's limit.

A unit of work sends its changes in its own transaction, so others hear of them if and only if it
is committed.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_model.errors import ConfigError

MOST_BYTES: Final = 7900
"""Of a payload: PostgreSQL takes less than 8,000."""
LONGEST_CHANGE: Final = 7500
"""Bytes of one change, which leaves room for the rest of its payload."""

EncodedChange = tuple[str, str, str, str]
"""Kind, id, project and piped of a change."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of one NOTIFY: ids of what changed, or of a message for a control plane."""

    origin: str
    """The control plane that sends it; it has told its own listeners already."""
    to: str = ""
    """The one that it is for; empty is all of them."""
    changes: tuple[EncodedChange, ...] = ()
    message_id: str = ""
    """A message, which is in its table."""
    git_hint: tuple[str, str, str, str, str] | None = None
    """Project, piped, repository, branch and commit."""
    ping: int = 0
    """A number that the sender wants to hear again itself."""


def encode_notice(notice: Notice) -> str:
    return msgspec.json.encode(notice).decode()


def decode_notice(payload: str) -> Notice | None:
    """Returns a notice; None for a payload that is none."""
    try:
        return msgspec.json.decode(payload, type=Notice)
    except msgspec.DecodeError:
        return None


def check_length(change: Change) -> None:
    """Raises ConfigError for a change whose ids no payload can hold."""
    size = len(msgspec.json.encode(_encode(change)))
    if size > LONGEST_CHANGE:
        raise ConfigError(
            f"an id of a {change.kind.value} is too long: {len(change.id)} characters"
        )


def encode_changes(origin: str, changes: Sequence[Change]) -> list[str]:
    """Returns the payloads of changes, each change once. Each has passed `check_length`."""
    payloads: list[str] = []
    part: list[EncodedChange] = []
    size = 0
    empty = len(encode_notice(Notice(origin=origin, changes=(("", "", "", ""),))))
    for change in dict.fromkeys(changes):
        encoded = _encode(change)
        needed = len(msgspec.json.encode(encoded)) + 1
        if part and empty + size + needed > MOST_BYTES:
            payloads.append(encode_notice(Notice(origin=origin, changes=tuple(part))))
            part, size = [], 0
        part.append(encoded)
        size += needed
    if part:
        payloads.append(encode_notice(Notice(origin=origin, changes=tuple(part))))
    return payloads


def read_changes(notice: Notice) -> Iterator[Change]:
    """Yields the changes of a notice, without those of kinds that only a newer version knows."""
    known = {kind.value for kind in ChangeKind}
    for kind, thing_id, project_id, piped_id in notice.changes:
        if kind in known:
            yield Change(
                kind=ChangeKind(kind), id=thing_id, project_id=project_id, piped_id=piped_id
            )


def _encode(change: Change) -> EncodedChange:
    return change.kind.value, change.id, change.project_id, change.piped_id
