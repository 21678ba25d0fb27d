# SPDX-License-Identifier: Apache-2.0
"""Secrets at rest: encrypted with the first key, decrypted with any.

A key is the content of a file. A ciphertext carries the name of its key, so that keys can be
rotated: put a new key before the old one, and the next start encrypts everything again with the new
one; then the old one can be removed.
"""

import base64
import binascii
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pipecd_model.errors import ConfigError, StateError
from pipecd_runtime.files import write_atomically

KEY_FILE: Final = "encryption.key"
SHORTEST: Final = 32
"""Bytes of a key file, as upstream's."""

UNKNOWN_KEY: Final = (
    "the secrets in this database are encrypted with a key that this server does not have"
)

MARK: Final = "pv1"
NONCE: Final = 12


class Vault:
    """Encrypts and decrypts small secrets, each bound to the place where it is stored."""

    def __init__(self, keys: Sequence[bytes], *, purpose: str = "at rest") -> None:
        derived = [_derive(key, purpose) for key in keys]
        self._ciphers = {_name(key): AESGCM(key) for key in derived}
        self._current = _name(derived[0])

    @property
    def key_name(self) -> str:
        """Returns the name of the key that it encrypts with."""
        return self._current

    def has_key(self, name: str) -> bool:
        return name in self._ciphers

    def encrypt(self, text: str, *, place: str) -> str:
        nonce = os.urandom(NONCE)
        closed = self._ciphers[self._current].encrypt(nonce, text.encode(), place.encode())
        return f"{MARK}.{self._current}.{base64.urlsafe_b64encode(nonce + closed).decode()}"

    def decrypt(self, closed: str, *, place: str) -> str:
        """Returns the plaintext.

        Raises StateError when its key is not among ours, or it was encrypted for another place.
        """
        _mark, _, rest = closed.partition(".")
        name, _, data = rest.partition(".")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise StateError(
                "a stored secret was closed with an encryption key that is not here",
                hint="name the older key file after the new one with --encryption-key-file",
            )
        try:
            raw = base64.urlsafe_b64decode(data)
            return cipher.decrypt(raw[:NONCE], raw[NONCE:], place.encode()).decode()
        except (binascii.Error, ValueError, InvalidTag):
            raise StateError("a stored secret cannot be opened: it is not whole") from None

    def is_current(self, closed: str) -> bool:
        return closed.startswith(f"{MARK}.{self._current}.")


def is_encrypted(text: str) -> bool:
    return text.startswith(f"{MARK}.")


def read_keys(files: Sequence[Path], folder: Path) -> list[bytes]:
    """Returns the keys in the files, in that order; without files, the key in the data folder."""
    if not files:
        return [_own_key(folder / KEY_FILE)]
    return [_read(file) for file in files]


def _read(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the encryption key {str(path)!r}: {error.strerror}"
        ) from error
    if len(key) < SHORTEST:
        raise ConfigError(
            f"the encryption key {str(path)!r} has {len(key)} bytes",
            hint=f"at least {SHORTEST}: head -c64 /dev/urandom | base64 > {path}",
        )
    return key


def _own_key(path: Path) -> bytes:
    """Returns the key in the data folder; generates it when there is none.

    A copy of the folder includes this key: for more protection, configure a key file outside it.
    """
    if not path.exists():
        with suppress(FileExistsError):
            key = base64.b64encode(os.urandom(64)) + b"\n"
            write_atomically(path, key, mode=0o600, replace=False)
    return _read(path)


def _derive(key: bytes, purpose: str) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=f"pipecd {purpose}".encode()).derive(key)


def _name(key: bytes) -> str:
    digest = Hash(SHA256())
    digest.update(b"name" + key)
    return digest.finalize().hex()[:12]
