# SPDX-License-Identifier: Apache-2.0
"""Keys: made at random, shown once, kept as a hash.

Hashing takes a twentieth of a second of one core on purpose; it runs in a thread.
"""

import asyncio
import secrets
import string
from typing import Final

import bcrypt

ALPHABET: Final = string.ascii_lowercase + string.digits
PIPED_KEY_LENGTH: Final = 50
API_SECRET_LENGTH: Final = 32
PASSWORD_LENGTH: Final = 30

COST: Final = 10
"""Of bcrypt, as upstream's: a hash that either made is good for both."""


def new_piped_key() -> str:
    return _random(PIPED_KEY_LENGTH)


def new_api_key(key_id: str) -> str:
    """The whole key, as a program sends it."""
    return f"{key_id}.{_random(API_SECRET_LENGTH)}"


def new_password() -> str:
    return _random(PASSWORD_LENGTH)


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


async def hash_of(key: str) -> str:
    hashed = await asyncio.to_thread(bcrypt.hashpw, key.encode(), bcrypt.gensalt(COST))
    return hashed.decode()


async def matches(key: str, hashed: str) -> bool:
    try:
        return await asyncio.to_thread(bcrypt.checkpw, key.encode(), hashed.encode())
    except ValueError:
        return False  # longer than bcrypt takes, so it is not one of ours
