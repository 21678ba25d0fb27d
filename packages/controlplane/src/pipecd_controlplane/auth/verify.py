# SPDX-License-Identifier: Apache-2.0
"""Compares keys with stored hashes. That happens on every call, so results are cached.

With a slow hash a check takes a twentieth of a second of one core. The cache is keyed
by the pair of a fast hash of the key and the slow hash it was compared with: when the record
changes, the pair is another one, so a key that was removed stops working with the next call.
"""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from pipecd_controlplane.usecases import keys

REMEMBERED: Final = 10_000
"""Pairs; the one used longest ago is forgotten. Wrong keys count too: they cost as much."""


class Verifier:
    """Checks keys against hashes, each pair once."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[bytes, str], bool] = OrderedDict()
        self._checking: WeakValueDictionary[tuple[bytes, str], asyncio.Lock] = WeakValueDictionary()

    def knows(self, key: str, hashed: str) -> bool:
        """Returns whether `matches` is cheap: the result is cached, or the hash is a fast one."""
        return (
            keys.is_quick(hashed)
            or (hashlib.sha256(key.encode()).digest(), hashed) in self._answers
        )

    async def matches(self, key: str, hashed: str) -> bool:
        if keys.is_quick(hashed):
            return await keys.matches(key, hashed)
        pair = (hashlib.sha256(key.encode()).digest(), hashed)
        answer = self._answers.get(pair)
        if answer is None:
            # Twenty first calls of one agent come at once; one of them does the work.
            lock = self._checking.setdefault(pair, asyncio.Lock())
            async with lock:
                answer = self._answers.get(pair)
                if answer is None:
                    answer = await keys.matches(key, hashed)
                    self._remember(pair, answer)
        else:
            self._answers.move_to_end(pair)
        return answer

    def _remember(self, pair: tuple[bytes, str], answer: bool) -> None:
        self._answers[pair] = answer
        if len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
