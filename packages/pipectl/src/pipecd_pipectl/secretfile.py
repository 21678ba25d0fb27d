# SPDX-License-Identifier: Apache-2.0
"""Writes a secret that is told once to a file, rather than to the terminal."""

import os
from pathlib import Path
from typing import Final

from pipecd_model.errors import StateError
from pipecd_runtime.files import write_atomically

PRIVATE_MODE: Final = 0o600


def check_writable(path: Path) -> None:
    """Raises StateError when a secret could not be written: it would be lost."""
    if path.exists():
        raise StateError(f"the file {str(path)!r} exists already", hint="name a new one")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise StateError(f"cannot write to the folder {str(path.absolute().parent)!r}")


def write_secret(path: Path, secret: str, *, lost_hint: str) -> None:
    """Writes a new file that only its user can read. Raises StateError with the hint."""
    try:
        write_atomically(path, f"{secret}\n".encode(), mode=PRIVATE_MODE, replace=False)
    except OSError as error:
        raise StateError(
            f"it was made, but {str(path)!r} cannot be written: {error.strerror}", hint=lost_hint
        ) from None
