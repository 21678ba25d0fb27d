# SPDX-License-Identifier: Apache-2.0
"""Keys: generated at random, shown once, stored as a hash.

A generated key has more than 160 random bits: it cannot be guessed, so a fast hash is as safe as a
slow one, and two hundred agents that reconnect after a restart cost almost no CPU. Passwords, and
keys whose hash was imported, have slow hashes (bcrypt): deliberately a twentieth of a second of one
core, in a thread.
"""

import asyncio
import hashlib
import hmac
import secrets
import string
from typing import Final

import bcrypt

ALPHABET: Final = string.ascii_lowercase + string.digits
PIPED_KEY_LENGTH: Final = 50
API_SECRET_LENGTH: Final = 32
PASSWORD_LENGTH: Final = 30

QUICK: Final = "sha256:"

COST: Final = 10
"""Of bcrypt, as upstream's: a hash that either made is good for both."""


def new_piped_key() -> str:
    return _random(PIPED_KEY_LENGTH)


def new_api_key(key_id: str) -> str:
    """Returns the whole key as a program sends it: its id, a dot and a random secret."""
    return f"{key_id}.{_random(API_SECRET_LENGTH)}"


def new_password() -> str:
    return _random(PASSWORD_LENGTH)


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def quick_hash(key: str) -> str:
    """Returns the fast hash (SHA-256), for keys that were generated here at random."""
    return QUICK + hashlib.sha256(key.encode()).hexdigest()


def is_quick(hashed: str) -> bool:
    return hashed.startswith(QUICK)


async def hash_of(key: str) -> str:
    """Returns the slow hash (bcrypt), for passwords that people choose."""
    hashed = await asyncio.to_thread(bcrypt.hashpw, key.encode(), bcrypt.gensalt(COST))
    return hashed.decode()


async def matches(key: str, hashed: str) -> bool:
    if is_quick(hashed):
        return hmac.compare_digest(quick_hash(key), hashed)
    try:
        return await asyncio.to_thread(bcrypt.checkpw, key.encode(), hashed.encode())
    except ValueError:
        return False  # longer than bcrypt takes, so it is not one of ours
