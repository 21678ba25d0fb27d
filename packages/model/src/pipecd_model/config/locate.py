# SPDX-License-Identifier: Apache-2.0
"""Where in a text a value stands. Used only once something has to be said about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from pipecd_model.config.dialect import iter_events
from pipecd_model.config.path import Path, Step


@dataclass(frozen=True, slots=True)
class TextPosition:
    """Line and column, counted from 1, of a key and of what it holds."""

    key: tuple[int, int]
    value: tuple[int, int]


class Positions:
    """Finds the place of a path, or of the nearest thing around it that is in the text."""

    def __init__(self, text: str) -> None:
        self._places = _index(text)
        # Keys are read whatever their case, and rules name them in ours.
        self._folded: dict[Path, TextPosition] = {}
        for path, place in self._places.items():
            self._folded.setdefault(_fold(path), place)

    def key(self, path: Path) -> tuple[int, int]:
        """Where the key at this path is written; for what is missing, where it should be."""
        while path:
            found = self._find(path)
            if found is not None:
                return found.key
            path = path[:-1]
        return (1, 1)

    def value(self, path: Path) -> tuple[int, int]:
        """Where the value at this path is written."""
        found = self._find(path)
        return found.value if found is not None else self.key(path)

    def _find(self, path: Path) -> TextPosition | None:
        return self._places.get(path) or self._folded.get(_fold(path))


def _fold(path: Path) -> Path:
    return tuple(step.lower() if isinstance(step, str) else step for step in path)


def _index(text: str) -> dict[Path, TextPosition]:
    """Walk the first document and note where everything is."""
    places: dict[Path, TextPosition] = {}
    path: list[Step] = []
    counts: list[int | None] = []  # per open list the next index, per open map None
    waiting = False  # a key was read, its value comes next
    key_at = (1, 1)

    def place(event: Any) -> None:
        nonlocal waiting
        at = (event.start_mark.line + 1, event.start_mark.column + 1)
        if counts and counts[-1] is not None:
            path.append(counts[-1])
            counts[-1] += 1
            places.setdefault(tuple(path), TextPosition(at, at))
        else:
            places.setdefault(tuple(path), TextPosition(key_at if waiting else at, at))
        waiting = False

    try:
        for event in iter_events(text):
            kind = type(event)
            if kind is yaml.DocumentEndEvent:
                break
            if kind is yaml.ScalarEvent or kind is yaml.AliasEvent:
                if counts and counts[-1] is None and not waiting:
                    path.append(getattr(event, "value", event.anchor or ""))
                    key_at = (event.start_mark.line + 1, event.start_mark.column + 1)
                    waiting = True
                    continue
                place(event)
                if path:
                    path.pop()
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                place(event)
                counts.append(0 if kind is yaml.SequenceStartEvent else None)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                counts.pop()
                if path:
                    path.pop()
    except yaml.YAMLError:
        pass  # the places up to here are still good
    return places
