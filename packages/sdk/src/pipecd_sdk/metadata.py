# SPDX-License-Identifier: Apache-2.0
"""What a stage stores, so that it can be continued after a restart."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pipecd_sdk.results import StageFailedError


class Metadata(ABC):
    """Texts by key, stored by the control plane; a put is durable when it returns.

    Every method raises PipedError when piped cannot be asked.

    Example:
        if await ctx.metadata.get("planned") is None:
            await ctx.metadata.put("planned", await self.plan())
    """

    @abstractmethod
    async def get(self, key: str) -> str | None:
        """Returns the value of a key, None when it has none."""

    @abstractmethod
    async def put(self, key: str, value: str) -> None:
        """Stores a value."""

    @abstractmethod
    async def put_many(self, values: Mapping[str, str]) -> None:
        """Stores several values in one step."""

    async def get_or_set_time(self, key: str, now: Callable[[], datetime]) -> datetime:
        """Returns the time stored under a key; without one stores `now()`, in Unix seconds.

        Raises StageFailedError when the stored value is no time.
        """
        kept = await self.get(key)
        if kept is None:
            moment = now()
            await self.put(key, str(int(moment.timestamp())))
            return moment
        try:
            return datetime.fromtimestamp(int(kept), UTC)
        except (ValueError, OverflowError, OSError):
            raise StageFailedError(f"the metadata {key!r} is no time: {kept!r}") from None
