# SPDX-License-Identifier: Apache-2.0
"""Closing a secret for one piped, with the public key that it has reported.

What the control plane does for `Encrypt` and `GenerateApplicationSealedSecret`.
"""

from __future__ import annotations

from base64 import b64encode

from pipecd_model.errors import StateError
from pipecd_model.secrets.cipher import BadKeyError, Sealer
from pipecd_wire.model.piped_pb2 import Piped


def seal(piped: Piped, plaintext: str, *, base64: bool = False) -> str:
    """Close a text that only this piped can open; raises StateError when it has no key."""
    encryption = piped.secret_encryption
    if encryption.type != "KEY_PAIR" or not encryption.public_key:
        raise StateError(
            f"the piped {piped.id!r} has reported no key for secrets",
            hint="set secretManagement in its configuration and start it",
        )
    try:
        sealer = Sealer(encryption.public_key.encode())
    except BadKeyError as error:
        raise StateError(
            f"the piped {piped.id!r} has reported a key that cannot be used: {error}",
            hint=error.hint,
        ) from None
    return sealer.seal(encode_base64(plaintext) if base64 else plaintext)


def encode_base64(plaintext: str | bytes) -> str:
    """Write a text as base64, for targets that want it so."""
    data = plaintext.encode() if isinstance(plaintext, str) else plaintext
    return b64encode(data).decode()
