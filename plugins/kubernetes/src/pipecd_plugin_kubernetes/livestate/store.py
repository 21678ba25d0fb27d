# SPDX-License-Identifier: Apache-2.0
"""The objects of one cluster that belong to somebody, by uid, with their owners and dependents.

It is filled by watches and read by questions, in one event loop; nothing here waits.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from pipecd_plugin_kubernetes.client import ApiResource
from pipecd_plugin_kubernetes.livestate.records import LiveObject

DEEPEST: Final = 16
"""Owners of owners that are followed. A cycle of owners, which nobody forbids, ends here."""


class LiveStore:
    """What is known of one cluster."""

    def __init__(self) -> None:
        self._objects: dict[str, LiveObject] = {}
        self._dependents: dict[str, set[str]] = {}
        self._marked: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, record: LiveObject) -> set[str]:
        """Keeps an object; returns the applications that it changes, none when it is the same."""
        old = self._objects.get(record.uid)
        if old == record:
            return set()
        changed = self.remove(record.uid)
        self._objects[record.uid] = record
        for owner in record.owners:
            self._dependents.setdefault(owner, set()).add(record.uid)
        if record.application:
            self._marked.setdefault(record.application, set()).add(record.uid)
        return changed | self.find_applications(record)

    def remove(self, uid: str) -> set[str]:
        """Forgets an object; returns the applications that it changes."""
        record = self._objects.get(uid)
        if record is None:
            return set()
        changed = self.find_applications(record)
        del self._objects[uid]
        for owner in record.owners:
            _discard(self._dependents, owner, uid)
        if record.application:
            _discard(self._marked, record.application, uid)
        return changed

    def replace_kind(self, resource: ApiResource, records: Iterable[LiveObject]) -> set[str]:
        """Keeps exactly these objects of a kind; returns the applications that this changes."""
        changed: set[str] = set()
        found = set()
        for record in records:
            found.add(record.uid)
            changed |= self.put(record)
        gone = [
            record.uid
            for record in self._objects.values()
            if record.resource == resource and record.uid not in found
        ]
        for uid in gone:
            changed |= self.remove(uid)
        return changed

    def find_applications(self, record: LiveObject) -> set[str]:
        """Returns the applications of an object: its own mark, else those of its owners."""
        found: set[str] = set()
        level = [record]
        for _ in range(DEEPEST):
            found |= {each.application for each in level if each.application}
            level = [
                owner
                for each in level
                if not each.application
                for uid in each.owners
                if (owner := self._objects.get(uid)) is not None
            ]
            if not level:
                break
        return found

    def find_managed(self, application: str) -> list[LiveObject]:
        """Returns what an application has applied."""
        return [
            self._objects[uid]
            for uid in self._marked.get(application, ())
            if self._objects[uid].is_managed
        ]

    def walk(self, application: str) -> Iterator[LiveObject]:
        """Yields the objects of an application, owners before what they own, each once."""
        seen: set[str] = set()
        level = list(self._marked.get(application, ()))
        while level:
            following: list[str] = []
            for uid in level:
                record = self._objects.get(uid)
                if uid in seen or record is None:
                    continue
                if record.application not in {"", application}:
                    continue  # somebody else's, whoever owns it
                seen.add(uid)
                yield record
                following += self._dependents.get(uid, ())
            level = following


def _discard(index: dict[str, set[str]], key: str, uid: str) -> None:
    members = index.get(key)
    if members is not None:
        members.discard(uid)
        if not members:
            del index[key]
