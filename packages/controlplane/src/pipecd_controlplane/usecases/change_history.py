# SPDX-License-Identifier: Apache-2.0
"""What changed in a project lately: whoever was away for a while asks what they missed.

Each thing is kept once, with the number of its last change. A cursor is good in the process that
gave it; in another one, or after very many changes, everything has to be read again.
"""

import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store.changes import Change, project_topic
from pipecd_controlplane.usecases.shared_state import ChangeBus

MOST: Final = 10_000
"""Things whose changes are kept for each project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What was missed since a position."""

    changes: list[Change]
    position: int
    is_whole: bool
    """Whether nothing else can have changed."""


class ProjectHistory:
    """The latest change of each thing of a project; a subscriber of the bus."""

    def __init__(self, mark: str, most: int = MOST) -> None:
        self._mark = mark
        self._most = most
        self._changes: dict[Change, int] = {}
        """By change its number, the oldest first."""
        self._forgotten = 0
        """The number of the newest change that is not known any more."""
        self.position = 0

    def notify(self, change: Change) -> None:
        self.position += 1
        self._changes.pop(change, None)
        self._changes[change] = self.position
        if len(self._changes) > self._most:
            oldest = next(iter(self._changes))
            self._forgotten = self._changes.pop(oldest)

    def resync(self) -> None:
        """Forgets everything: of what was missed nothing is known."""
        self.position += 1
        self._changes.clear()
        self._forgotten = self.position

    def stop(self) -> None:
        """Does nothing: nobody waits here."""

    def read_since(self, position: int) -> Missed:
        """Returns the changes after a position, in their order."""
        changes = []
        for change, number in reversed(self._changes.items()):
            if number <= position:
                break
            changes.append(change)
        return Missed(
            changes=changes[::-1],
            position=self.position,
            is_whole=self._forgotten <= position <= self.position,
        )

    def format_cursor(self, position: int) -> str:
        return f"{self._mark}.{position}"

    def parse_cursor(self, cursor: str) -> int | None:
        """Returns the position of a cursor; None for one that this history did not give."""
        mark, _, number = cursor.partition(".")
        is_ours = mark == self._mark and number.isascii() and number.isdigit()
        if not is_ours or len(number) > 18 or int(number) > self.position:
            return None
        return int(number)


class ChangeHistories:
    """The histories of the projects that somebody watches, from the first watch on."""

    def __init__(self, bus: ChangeBus) -> None:
        self._bus = bus
        self._mark = secrets.token_hex(8)
        self._histories: dict[str, ProjectHistory] = {}
        self._subscribed = ExitStack()
        """For good: projects are few, and who comes back later must find what happened."""

    async def catch_up(self) -> None:
        """Waits until the histories hold what was committed before, see `ChangeBus.catch_up`."""
        await self._bus.catch_up()

    def find(self, project_id: str) -> ProjectHistory:
        """Returns the history of a project; it begins now if there is none yet."""
        history = self._histories.get(project_id)
        if history is None:
            history = self._histories[project_id] = ProjectHistory(self._mark)
            self._subscribed.enter_context(
                self._bus.subscription(history, project_topic(project_id))
            )
        return history
