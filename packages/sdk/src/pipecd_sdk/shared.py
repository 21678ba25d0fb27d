# SPDX-License-Identifier: Apache-2.0
"""What a plugin keeps with an application, from one deployment to the next."""

from abc import ABC, abstractmethod


class SharedObjects(ABC):
    """Bytes under keys, of this plugin and this application; a put has arrived when it returns.

    Example:
        last = await ctx.shared.get("last-result")
        await ctx.shared.put("last-result", b"42")
    """

    @abstractmethod
    async def get(self, key: str) -> bytes | None:
        """The object of a key, None when it has none."""

    @abstractmethod
    async def put(self, key: str, value: bytes) -> None:
        """Keep an object."""
