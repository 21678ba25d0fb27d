# SPDX-License-Identifier: Apache-2.0
"""When each application is due, by lane: what is next costs the same however many there are."""

import heapq
from collections.abc import Callable


class DueTimes:
    """The times at which applications are due, each in one lane."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, float]] = {}
        self._queues: dict[str, list[tuple[float, str]]] = {}
        """By lane, the earliest first; an entry that is not in `_entries` any more is void."""

    def get(self, application_id: str) -> float | None:
        """Returns when an application is due; None when it is in no lane."""
        entry = self._entries.get(application_id)
        return None if entry is None else entry[1]

    def set(self, application_id: str, lane: str, due: float) -> None:
        """Make an application due at a time, in a lane; it leaves the lane that it was in."""
        if self._entries.get(application_id) != (lane, due):
            self._entries[application_id] = (lane, due)
            heapq.heappush(self._queues.setdefault(lane, []), (due, application_id))

    def remove(self, application_id: str) -> None:
        """Forget an application."""
        self._entries.pop(application_id, None)

    def find_next(self, lane: str, *, is_open: Callable[[str], bool]) -> tuple[str, float] | None:
        """Returns the first application of a lane that is open, and when it is due."""
        queue = self._queues.get(lane, [])
        passed: list[tuple[float, str]] = []
        found = None
        while queue and found is None:
            due, application_id = queue[0]
            if self._entries.get(application_id) != (lane, due):
                heapq.heappop(queue)
            elif is_open(application_id):
                found = (application_id, due)
            else:
                passed.append(heapq.heappop(queue))
        for each in passed:
            heapq.heappush(queue, each)
        return found
