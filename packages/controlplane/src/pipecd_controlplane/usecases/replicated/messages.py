# SPDX-License-Identifier: Apache-2.0
"""Messages from one control plane to another, through the database that they share.

What a message says is for the memory of its receiver: it is encrypted with a key pair that the
receiver has made at its start and keeps nowhere else, and with an encryption key that both have.
So neither the database nor a copy of it reveals a message, and nobody can make one up who can
write to the database.
"""

import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pipecd_controlplane.store.postgres.notices import Notice
from pipecd_controlplane.store.postgres.shared_tables import SharedTables
from pipecd_controlplane.usecases.replicated.channels import ALIVE_SECONDS
from pipecd_controlplane.usecases.replicated.notifier import Notifier
from pipecd_model.errors import NotFoundError
from pipecd_model.ids import new_id
from pipecd_runtime.logs import logger

log = logger(__name__)

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12

PUBLIC_KEY: Final = (
    "SELECT public_key FROM pipecd_replica"
    " WHERE id = $1 AND seen_at > now() - make_interval(secs => $2)"
)
ADD: Final = (
    "INSERT INTO pipecd_message (id, data, sent_at) VALUES ($1, $2, now())"
    " ON CONFLICT (id) DO NOTHING"
)
TAKE: Final = "DELETE FROM pipecd_message WHERE id = $1 RETURNING data"


class SealedBox:
    """Encrypts for another control plane, and decrypts what is for this one."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = list(keys)
        self._private = X25519PrivateKey.generate()
        self.public_key = self._private.public_key().public_bytes_raw()

    def seal(self, text: bytes, *, to: bytes, context: str) -> bytes:
        """Returns a message that only the owner of the public key `to` can open."""
        own = X25519PrivateKey.generate()
        shared = own.exchange(X25519PublicKey.from_public_bytes(to))
        sender = own.public_key().public_bytes_raw()
        nonce = os.urandom(NONCE_BYTES)
        cipher = _derive(shared, self._keys[0], sender + to)
        return sender + nonce + cipher.encrypt(nonce, text, context.encode())

    def open(self, sealed: bytes, *, context: str) -> bytes | None:
        """Returns the text of a message; None when it is not for us, or not from one of us."""
        sender, rest = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
        nonce, text = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(sender))
        except ValueError:
            return None
        for key in self._keys:
            try:
                cipher = _derive(shared, key, sender + self.public_key)
                return cipher.decrypt(nonce, text, context.encode())
            except (InvalidTag, ValueError):
                continue
        return None


def _derive(shared: bytes, key: bytes, parties: bytes) -> AESGCM:
    derived = HKDF(SHA256(), KEY_BYTES, salt=key, info=b"pipecd message " + parties)
    return AESGCM(derived.derive(shared))


class Messages:
    """The messages to and from this control plane."""

    def __init__(self, tables: SharedTables, notifier: Notifier, box: SealedBox) -> None:
        self._tables = tables
        self._notifier = notifier
        self._box = box

    async def send(self, to: str, text: bytes) -> None:
        """Sends a message to a control plane. Raises NotFoundError when it does not run."""
        row = await self._tables.row(PUBLIC_KEY, to, ALIVE_SECONDS)
        if row is None:
            raise NotFoundError(f"there is no control plane {to!r}")
        message_id = new_id()
        sealed = self._box.seal(text, to=row[0], context=message_id)
        await self._tables.run(ADD, message_id, sealed)
        await self._notifier.send_notice(
            Notice(origin=self._notifier.replica_id, to=to, message_id=message_id)
        )

    async def take(self, message_id: str) -> bytes | None:
        """Returns the text of a message, once; None when it is gone or is not genuine."""
        row = await self._tables.row(TAKE, message_id)
        text = None if row is None else self._box.open(row[0], context=message_id)
        if text is None:
            log.warning("replica.message_unreadable", message=message_id)
        return text
