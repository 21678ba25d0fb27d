# SPDX-License-Identifier: Apache-2.0
"""Secrets of providers: read from files when a stage starts, never shown."""

import asyncio
from pathlib import Path

from pipecd_sdk import Base64Secret, StageFailedError

LARGEST_FILE = 64 * 1024


async def read_secret(file: str, data: Base64Secret | None = None) -> str:
    """Returns the secret of a file, or the one that is given as base64, without blanks around it.

    Raises StageFailedError, which names the file and nothing of what is in it.
    """
    if data:
        return _to_text(data.decode(), "the key in the piped file")
    return _to_text(await asyncio.to_thread(_read, file), f"the file {file!r}")


async def read_login(username_file: str, password_file: str) -> tuple[str, str] | None:
    """Returns name and password where both files are given, else None."""
    if not (username_file and password_file):
        return None
    return await read_secret(username_file), await read_secret(password_file)


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(LARGEST_FILE)
    except OSError as error:
        raise StageFailedError(
            f"cannot read {file!r}: {error.strerror}",
            hint="it is named by a provider of the plugin analysis in the piped file",
        ) from None


def _to_text(raw: bytes, name: str) -> str:
    try:
        text = raw.decode().strip()
    except UnicodeDecodeError:
        raise StageFailedError(f"{name} is no text") from None
    if not text:
        raise StageFailedError(f"{name} is empty")
    if not text.isprintable():
        raise StageFailedError(f"{name} has more than one line, or control characters")
    return text
