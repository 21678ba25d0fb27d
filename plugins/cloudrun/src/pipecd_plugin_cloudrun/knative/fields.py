# SPDX-License-Identifier: Apache-2.0
"""Reads the maps of a manifest key by key, and remembers what nobody has read.

Faults are collected, so that an author sees all of them at once.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

RESERVED: Final = (
    "run.googleapis.com",
    "cloud.googleapis.com",
    "serving.knative.dev",
    "autoscaling.knative.dev",
)
"""Namespaces of labels and annotations that the API's version 2 refuses: it has fields instead."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,10}")
_TRUTH: Final = {"true": True, "false": False}


class FieldReader:
    """One map of a manifest."""

    def __init__(self, raw: Any, path: str, faults: list[str]) -> None:
        self.path = path
        self.faults = faults
        self._raw: dict[str, Any] = {}
        self._read: set[str] = set()
        if isinstance(raw, dict):
            self._raw = raw
        elif raw is not None:
            self.faults.append(f"{path or 'the manifest'}: must be a map")

    def fault(self, key: str, message: str) -> None:
        """Adds a fault at a key of this map."""
        self.faults.append(f"{self._name(key)}: {message}")

    def has(self, key: str) -> bool:
        return self._raw.get(key) is not None

    def ignore(self, *keys: str) -> None:
        """Passes over keys that only the platform writes."""
        self._read.update(keys)

    def read_text(self, key: str) -> str | None:
        """Returns a text; a number or truth value counts as its text. None when it is missing."""
        value = self._take(key)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        self.fault(key, "must be a text")
        return None

    def read_whole(self, key: str) -> int | None:
        """Returns a whole number, also one written as text."""
        text = self.read_text(key)
        if text is None:
            return None
        if not _WHOLE.fullmatch(text):
            self.fault(key, f"must be a whole number: {text!r}")
            return None
        return int(text)

    def read_flag(self, key: str) -> bool | None:
        """Returns a truth value, also one written as text."""
        text = self.read_text(key)
        if text is None:
            return None
        if text.lower() not in _TRUTH:
            self.fault(key, f"must be true or false: {text!r}")
            return None
        return _TRUTH[text.lower()]

    def read_choice(self, key: str, choices: dict[str, str]) -> str | None:
        """Returns what one of several words stands for."""
        text = self.read_text(key)
        if text is None:
            return None
        if text.lower() not in choices:
            self.fault(key, f"must be one of {', '.join(choices)}: {text!r}")
            return None
        return choices[text.lower()]

    def read_texts(self, key: str) -> list[str] | None:
        """Returns a list of texts."""
        value = self._take(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(each, str | int | float) for each in value
        ):
            self.fault(key, "must be a list of texts")
            return None
        return [each if isinstance(each, str) else str(each) for each in value]

    def read_text_map(self, key: str) -> dict[str, str]:
        """Returns a map of texts, an empty one when it is missing."""
        inner = self.open_map(key)
        return {name: text for name in list(inner) if (text := inner.read_text(name)) is not None}

    def open_map(self, key: str) -> "FieldReader":
        """Returns the reader of a map within this one."""
        return FieldReader(self._take(key), self._name(key), self.faults)

    def open_maps(self, key: str) -> list["FieldReader"]:
        """Returns the readers of a list of maps."""
        value = self._take(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.fault(key, "must be a list")
            return []
        return [
            FieldReader(each, f"{self._name(key)}[{index}]", self.faults)
            for index, each in enumerate(value)
        ]

    def __iter__(self) -> Iterator[str]:
        return iter([key for key in self._raw if key not in self._read])

    def close(self) -> None:
        """Refuses every key that nobody has read."""
        for key in self:
            if self._raw[key] not in (None, {}, []):
                self.fault(key, "is not supported by the Cloud Run API that is used (version 2)")

    def close_names(self) -> dict[str, str]:
        """Returns the labels or annotations that nobody has read; refuses those of the platform."""
        kept: dict[str, str] = {}
        for key in list(self):
            domain = key.partition("/")[0] if "/" in key else ""
            if any(domain == each or domain.endswith(f".{each}") for each in RESERVED):
                self._read.add(key)
                self.fault(key, "has no counterpart in the Cloud Run API (version 2)")
            elif (text := self.read_text(key)) is not None:
                kept[key] = text
        return kept

    def _take(self, key: str) -> Any:
        self._read.add(key)
        return self._raw.get(key)

    def _name(self, key: str) -> str:
        if not self.path:
            return key
        return f"{self.path}[{key!r}]" if "/" in key or "." in key else f"{self.path}.{key}"


def drop_missing(**values: Any) -> dict[str, Any]:
    """Returns a body without the fields that were not given."""
    return {
        key: value for key, value in values.items() if value is not None and value not in ({}, [])
    }
