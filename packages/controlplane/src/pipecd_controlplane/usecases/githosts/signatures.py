# SPDX-License-Identifier: Apache-2.0
"""How each git host shows that a hook is its own: by a signature over the body, or by the secret.

Everything is compared in constant time, and every secret that counts is tried.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipecd_wire.pipecd.api.repositories_pb2 import Hook

SIGNATURE_HEADER: Final = "x-pipecd-signature"
TIMESTAMP_HEADER: Final = "x-pipecd-timestamp"
GITLAB_TOKEN_HEADER: Final = "x-gitlab-token"  # noqa: S105 - the name of a header
MAX_AGE_SECONDS: Final = 300
"""How far the time of a signed hook of the generic kind may be from ours, either way."""

_HEADERS: Final = {
    Hook.GITHUB: ("x-hub-signature-256",),
    Hook.GITLAB: (GITLAB_TOKEN_HEADER,),
    Hook.GITEA: ("x-gitea-signature", "x-forgejo-signature"),
    Hook.BITBUCKET: ("x-hub-signature",),
    Hook.BITBUCKET_SERVER: ("x-hub-signature",),
    Hook.GENERIC: (SIGNATURE_HEADER,),
}
_ALL: Final = frozenset(name for names in _HEADERS.values() for name in names)
_PREFIX: Final = "sha256="
_LONGEST: Final = 512
"""Characters of a signature or token; ours are shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBody:
    """A hook as it arrived. The names of headers are in small letters."""

    headers: Mapping[str, str]
    body: bytes


def has_signature(headers: Mapping[str, str]) -> bool:
    """Returns whether the headers have a signature of any host."""
    return any(headers.get(name) for name in _ALL)


def is_stale(headers: Mapping[str, str], now: int) -> bool:
    """Returns whether the hook carries a time of ours that is not about now."""
    text = headers.get(TIMESTAMP_HEADER)
    if text is None:
        return False
    at = _read_seconds(text)
    return at is None or abs(now - at) > MAX_AGE_SECONDS


def find_secret(signed: SignedBody, host: Hook.Host.ValueType, secrets: Sequence[str]) -> int:
    """Returns the number of the secret that the hook is signed with; -1 for none.

    The time it takes does not depend on which one it is.
    """
    given = next((each for name in _HEADERS[host] if (each := signed.headers.get(name))), "")
    if len(given) > _LONGEST:
        return -1
    found = -1
    for number, secret in enumerate(secrets):
        if _matches(given, signed, host, secret):
            found = number
    return found


def sign_generic(secret: str, timestamp: int, body: bytes) -> str:
    """Returns what belongs into the header `X-Pipecd-Signature`: for programs of ours and tests."""
    return _PREFIX + _sign(secret, b"%d.%s" % (timestamp, body))


def _matches(given: str, signed: SignedBody, host: Hook.Host.ValueType, secret: str) -> bool:
    if host == Hook.GITLAB:
        # Hashes first: how long a secret is may not be learned either.
        return hmac.compare_digest(_hash(given), _hash(secret))
    if host == Hook.GENERIC:
        timestamp = _read_seconds(signed.headers.get(TIMESTAMP_HEADER, ""))
        if timestamp is None:
            return False
        expected = sign_generic(secret, timestamp, signed.body)
    else:
        prefix = "" if host == Hook.GITEA else _PREFIX
        expected = prefix + _sign(secret, signed.body)
    return hmac.compare_digest(given.strip().lower().encode(), expected.encode())


def _sign(secret: str, data: bytes) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read_seconds(text: str) -> int | None:
    """Returns Unix seconds; None for anything else."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len("99999999999")
    return int(text) if is_number else None
