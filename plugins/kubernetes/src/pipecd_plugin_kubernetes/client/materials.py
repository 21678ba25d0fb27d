# SPDX-License-Identifier: Apache-2.0
"""Certificates, keys and tokens: given as they are, or in files that are replaced now and then.

A file is read again when it changed; what it holds never becomes part of a message.
"""

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pipecd_plugin_kubernetes.client.errors import ConnectionConfigError

LARGEST_FILE: Final = 4 * 1024 * 1024
"""Bytes of a file of certificates; the system's whole bundle has a quarter of a million."""


class Material(Protocol):
    """A certificate, a key or a token."""

    def read(self) -> bytes:
        """Returns it as it is now. Raises ConnectionConfigError."""
        ...


@dataclass(frozen=True, slots=True)
class InlineMaterial:
    """Stands in the kubeconfig itself, or came from a credential plugin."""

    content: bytes = field(repr=False)

    def read(self) -> bytes:
        return self.content


class FileMaterial:
    """A file, read again when it changed."""

    def __init__(self, path: Path, *, named_by: str) -> None:
        """Reads nothing yet. `named_by` is the file and key that name it, for messages."""
        self.path = path
        self._named_by = named_by
        self._seen: tuple[int, ...] = ()
        self._content = b""

    def __repr__(self) -> str:
        return f"FileMaterial({str(self.path)!r})"

    def read(self) -> bytes:
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                with self.path.open("rb") as file:
                    content = file.read(LARGEST_FILE + 1)
                self._seen, self._content = seen, content
        except OSError as error:
            if self._content.strip():  # it is being replaced: what was read last holds
                return self._content
            raise ConnectionConfigError(
                f"{self._named_by}: {str(self.path)!r} cannot be read: {error.strerror}"
            ) from None
        if not self._content.strip():
            raise ConnectionConfigError(f"{self._named_by}: {str(self.path)!r} is empty")
        if len(self._content) > LARGEST_FILE:
            raise ConnectionConfigError(
                f"{self._named_by}: {str(self.path)!r} has more than {LARGEST_FILE} bytes"
            )
        return self._content


def decode_base64(text: str, *, named_by: str) -> bytes:
    """Returns the bytes of a `…-data` key. Raises ConnectionConfigError."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ConnectionConfigError(f"{named_by}: not base64") from None
