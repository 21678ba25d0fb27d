# SPDX-License-Identifier: Apache-2.0
"""Closing and opening secrets with an RSA key pair, byte for byte as other implementations do.

A closed secret is base64 of: the length of the wrapped key in two bytes (big-endian), a fresh AES
key of 32 bytes wrapped with RSA-OAEP and SHA-256, and the text in AES-256-GCM with its tag. The
nonce is all zero, which is safe only because every AES key is used once.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from pipecd_model.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:  # loaded only when a key is: it takes a while
    from cryptography.hazmat.primitives.asymmetric.padding import OAEP
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

_AES_KEY: Final = 32
_NONCE: Final = bytes(12)
_TAG: Final = 16
_SMALLEST: Final = 1024
_BITS: Final = 3072


class BadKeyError(ConfigError):
    """A key that cannot be used."""


class CannotOpenError(ConfigError):
    """A closed secret that these keys do not open."""


class Sealer:
    """Encrypts secrets with a public key: only the private key opens them."""

    def __init__(self, public_key: bytes) -> None:
        """Take a public key in PEM form; raises BadKeyError."""
        self._key = _public_key(public_key)

    def seal(self, plaintext: str | bytes) -> str:
        """Returns a text encrypted; the same text looks different each time."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        data = as_bytes(plaintext) if isinstance(plaintext, str) else plaintext
        key = secrets.token_bytes(_AES_KEY)
        wrapped = self._key.encrypt(key, _oaep())
        text = AESGCM(key).encrypt(_NONCE, data, None)
        return base64.b64encode(len(wrapped).to_bytes(2, "big") + wrapped + text).decode()


class Opener:
    """Opens secrets with a private key, or with one of two while keys are being changed."""

    def __init__(self, *private_keys: bytes) -> None:
        """Take private keys in PEM form, PKCS#8 or PKCS#1; raises BadKeyError."""
        if not private_keys:
            raise BadKeyError("there is no private key to open secrets with")
        self._keys = [_private_key(pem) for pem in private_keys]

    def open(self, closed: str) -> str:
        """Open a secret; raises CannotOpenError, which never shows it.

        Bytes that are no UTF-8 come in the form of Python's `surrogateescape`.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        wrapped, text = _parts(closed)
        key = self._unwrap(wrapped)
        try:
            return as_text(AESGCM(key).decrypt(_NONCE, text, None))
        except (InvalidTag, ValueError):
            raise CannotOpenError(
                "it was changed after it was closed", hint="copy it again, whole"
            ) from None

    def _unwrap(self, wrapped: bytes) -> bytes:
        for key in self._keys:
            if len(wrapped) != key.key_size + 7 >> 3:
                continue
            try:
                return key.decrypt(wrapped, _oaep())
            except ValueError:
                continue
        raise CannotOpenError(
            "it was closed for another key",
            hint="close it again with pipectl encrypt, or give piped the old key too",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """The two halves of a new key, in PEM form."""

    private: bytes = field(repr=False)
    """PKCS#8; stays with piped."""
    public: bytes
    """May be seen by everybody."""

    @classmethod
    def new(cls, bits: int = _BITS) -> Self:
        """Make one. Takes a moment."""
        _check_installed()
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

        key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        return cls(
            private=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            public=key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        )


def as_bytes(text: str) -> bytes:
    """Give the bytes that a text stands for, those that are no UTF-8 included."""
    return text.encode(errors="surrogateescape")


def as_text(data: bytes) -> str:
    """Give bytes as a text; what is no UTF-8 travels along."""
    return data.decode(errors="surrogateescape")


def _parts(closed: str) -> tuple[bytes, bytes]:
    try:
        data = base64.b64decode("".join(closed.split()), validate=True)
    except (binascii.Error, ValueError):
        raise CannotOpenError("it is not base64", hint="copy it again, whole") from None
    size = int.from_bytes(data[:2], "big")
    wrapped, text = data[2 : 2 + size], data[2 + size :]
    if len(data) < 2 or len(wrapped) < size or len(text) < _TAG:
        raise CannotOpenError(
            "it is not a closed secret", hint="write the output of pipectl encrypt"
        )
    return wrapped, text


def _oaep() -> OAEP:
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import padding  # noqa: PLC0415

    return padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)


def _check_installed() -> None:
    """Raise MissingExtraError in a program that was installed without secrets."""
    try:
        import cryptography  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        raise MissingExtraError(
            "secrets", distribution="cryptography", extras="pipecd-model[secrets]"
        ) from None


def _public_key(pem: bytes) -> RSAPublicKey:
    _check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    if b"PRIVATE KEY" in pem:
        raise BadKeyError("this is a private key", hint="give the public one, and keep this safe")
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise BadKeyError("this is not a public key in PEM form", hint=_hint(pem)) from None
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < _SMALLEST:
        raise BadKeyError("this is not an RSA key of a usable size", hint=_MAKE_ONE)
    return key


def _private_key(pem: bytes) -> RSAPrivateKey:
    _check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        raise BadKeyError(
            "the private key is locked with a password", hint="give one without"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadKeyError("this is not a private key in PEM form", hint=_hint(pem)) from None
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < _SMALLEST:
        raise BadKeyError("this is not an RSA key of a usable size", hint=_MAKE_ONE)
    return key


_MAKE_ONE: Final = "make a pair with pipectl keygen"


def _hint(pem: bytes) -> str:
    if b"PUBLIC KEY" in pem:
        return "it looks like the public half"
    if b"-----BEGIN" not in pem:
        return "it starts with -----BEGIN; key data in a piped file is base64 of that"
    return _MAKE_ONE
