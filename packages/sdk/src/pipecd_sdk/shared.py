# SPDX-License-Identifier: Apache-2.0
"""What a plugin stores with an application, from one deployment to the next."""

from abc import ABC, abstractmethod


class SharedObjects(ABC):
    """Bytes by key, of this plugin and this application; a put is durable when it returns.

    Every method raises PipedError when piped cannot be asked.

    Example:
        last = await ctx.shared.get("last-result")
        await ctx.shared.put("last-result", b"42")
    """

    @abstractmethod
    async def get(self, key: str) -> bytes | None:
        """Returns the object of a key, None when it has none."""

    @abstractmethod
    async def put(self, key: str, value: bytes) -> None:
        """Stores an object."""
