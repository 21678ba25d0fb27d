# SPDX-License-Identifier: Apache-2.0
"""Reads sections of a kubeconfig: what has the wrong shape is an error with file and key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipecd_plugin_kubernetes.client.errors import ConnectionConfigError
from pipecd_plugin_kubernetes.client.materials import (
    FileMaterial,
    InlineMaterial,
    Material,
    decode_base64,
)


class Section:
    """A map of a file, with its place. Values may be secrets: no message quotes one."""

    def __init__(self, values: dict[Any, Any], *, file: Path, place: str) -> None:
        self._values = values
        self.file = file
        self.place = place

    def name_key(self, key: str) -> str:
        """Returns file and key, for a message."""
        return f"{str(self.file)!r}: {self.place}.{key}" if self.place else f"{self.file}: {key}"

    def has(self, key: str) -> bool:
        """Returns whether the key has a value that is not empty."""
        return self._values.get(key) not in (None, "", [], {})

    def read_keys(self) -> tuple[str, ...]:
        """Returns the keys that are texts."""
        return tuple(key for key in self._values if isinstance(key, str))

    def read_text(self, key: str) -> str:
        """Returns a text; empty when there is none. A number is the text of it."""
        value = self._values.get(key)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ConnectionConfigError(f"{self.name_key(key)}: not a text")
        return str(value)

    def read_flag(self, key: str) -> bool:
        """Returns true or false; false when there is nothing."""
        value = self._values.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConnectionConfigError(f"{self.name_key(key)}: neither true nor false")
        return value

    def read_texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts."""
        value = self._values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ConnectionConfigError(f"{self.name_key(key)}: not a list of texts")
        return tuple(value)

    def read_value(self, key: str) -> Any:
        """Returns what stands there, as it is."""
        return self._values.get(key)

    def read_section(self, key: str) -> "Section":
        """Returns the map at a key; an empty one when there is none."""
        value = self._values.get(key)
        place = f"{self.place}.{key}" if self.place else key
        if value is None:
            return Section({}, file=self.file, place=place)
        if not isinstance(value, dict):
            raise ConnectionConfigError(f"{self.name_key(key)}: not a map")
        return Section(value, file=self.file, place=place)

    def iter_sections(self, key: str) -> Iterator["Section"]:
        """Yields the maps of a list."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, list):
            raise ConnectionConfigError(f"{self.name_key(key)}: not a list")
        for index, each in enumerate(value or ()):
            if not isinstance(each, dict):
                raise ConnectionConfigError(f"{self.name_key(key)}[{index}]: not a map")
            place = f"{key}[{index}]"
            yield Section(
                each, file=self.file, place=f"{self.place}.{place}" if self.place else place
            )

    def read_material(self, key: str, *, data_key: str = "") -> Material | None:
        """Returns what `…-data` holds, else the file that the key names; None for neither."""
        if data_key and self.has(data_key):
            named_by = self.name_key(data_key)
            return InlineMaterial(decode_base64(self.read_text(data_key), named_by=named_by))
        if not self.has(key):
            return None
        path = self.file.parent / self.read_text(key)
        return FileMaterial(path, named_by=self.name_key(key))
