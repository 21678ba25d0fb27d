# SPDX-License-Identifier: Apache-2.0
"""Programs in terminals that wait for a person to confirm their sign-in, in memory."""

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from pipecd_controlplane.usecases.attempts import Clock
from pipecd_controlplane.usecases.shared_state import LoginRequest
from pipecd_model.errors import ConflictError

MOST: Final = 2_000
"""Requests that are kept: many more than people who sign in within a few minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    request: LoginRequest
    network: str
    forget_at: float


class InProcessLoginRequests:
    """The requests that this process has been sent."""

    def __init__(self, clock: Clock = time.monotonic, *, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._kept: dict[str, _Kept] = {}
        self._codes: dict[str, str] = {}
        """The code by the hash of the secret."""

    async def add(self, request: LoginRequest, *, network: str, seconds: float) -> None:
        self._forget_old()
        if request.user_code in self._kept:
            raise ConflictError("the code is taken")
        if len(self._kept) >= self._most:
            self._forget_one()
        self._kept[request.user_code] = _Kept(
            request=request, network=network, forget_at=self._clock() + seconds
        )
        self._codes[request.device_hash] = request.user_code

    async def find_open(self, user_code: str) -> LoginRequest | None:
        self._forget_old()
        kept = self._kept.get(user_code)
        return None if kept is None or kept.request.is_answered else kept.request

    async def answer(self, user_code: str, *, session_id: str, is_refused: bool) -> bool:
        if await self.find_open(user_code) is None:
            return False
        kept = self._kept[user_code]
        answered = replace(kept.request, session_id=session_id, is_refused=is_refused)
        self._kept[user_code] = replace(kept, request=answered)
        return True

    async def take(self, device_hash: str) -> LoginRequest | None:
        self._forget_old()
        code = self._codes.get(device_hash)
        if code is None:
            return None
        request = self._kept[code].request
        if request.is_answered:
            self._forget(code)
        return request

    def _forget_old(self) -> None:
        now = self._clock()
        for code in [code for code, kept in self._kept.items() if kept.forget_at <= now]:
            self._forget(code)

    def _forget_one(self) -> None:
        """Forgets the oldest request of the network that has most: strangers cost each other."""
        ((network, _count),) = Counter(kept.network for kept in self._kept.values()).most_common(1)
        self._forget(next(code for code, kept in self._kept.items() if kept.network == network))

    def _forget(self, code: str) -> None:
        del self._codes[self._kept.pop(code).request.device_hash]
