# SPDX-License-Identifier: Apache-2.0
"""Reads the keys of `spec.secretManagement` and checks at the start that they match."""

import os
from dataclasses import dataclass
from pathlib import Path

from pipecd_model.config import Base64Secret
from pipecd_model.config.piped import KeyPairConfig, SecretManagementConfig
from pipecd_model.errors import ConfigError
from pipecd_model.secrets import BadKeyError, CannotOpenError, Opener, Sealer


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeys:
    """The private keys that decrypt secrets here, and the public key that encrypts them."""

    opener: Opener
    public: str
    """The public key in PEM form; not a secret."""


def read_keys(management: SecretManagementConfig | None) -> SecretKeys | None:
    """Returns the keys, None without secret management. Raises ConfigError.

    A public key that does not belong to the private key is refused here; otherwise it would only be
    noticed when a secret cannot be decrypted.
    """
    if management is None:
        return None
    config = management.config
    private = [_half("privateKey", config.private_key_file, config.private_key_data)]
    if config.old_private_key_file or config.old_private_key_data:
        private.append(
            _half("oldPrivateKey", config.old_private_key_file, config.old_private_key_data)
        )
    public = _public(config)
    openers = [_make_opener("private key", key) for key in private]
    try:
        openers[0].open(Sealer(public).seal("both halves belong together"))
    except BadKeyError as error:
        raise ConfigError(f"the public key cannot be used: {error}", hint=error.hint) from None
    except CannotOpenError:
        raise ConfigError(
            "publicKey and privateKey of secretManagement do not belong together",
            hint="write the public half of privateKey; an older private key is oldPrivateKey",
        ) from None
    return SecretKeys(opener=Opener(*private), public=public.decode(errors="replace"))


def _make_opener(what: str, pem: bytes) -> Opener:
    try:
        return Opener(pem)
    except BadKeyError as error:
        raise ConfigError(f"the {what} cannot be used: {error}", hint=error.hint) from None


def _public(config: KeyPairConfig) -> bytes:
    data = Base64Secret(config.public_key_data) if config.public_key_data else None
    return _half("publicKey", config.public_key_file, data)


def _half(name: str, file: str, data: Base64Secret | None) -> bytes:
    if data is not None:
        try:
            return data.decode()
        except ValueError:
            raise ConfigError(
                f"{name}Data is not base64", hint="write base64 of the key's PEM file"
            ) from None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise ConfigError(f"cannot read {name}File {file!r}: {why}") from error
