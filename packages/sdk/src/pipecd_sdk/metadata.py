# SPDX-License-Identifier: Apache-2.0
"""What a stage keeps, so that it can be continued after a restart."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pipecd_sdk.results import StageFailedError


class Metadata(ABC):
    """Texts under keys, kept by the control plane; a put has arrived there when it returns.

    Example:
        if await ctx.metadata.get("planned") is None:
            await ctx.metadata.put("planned", await self.plan())
    """

    @abstractmethod
    async def get(self, key: str) -> str | None:
        """The value of a key, None when it has none."""

    @abstractmethod
    async def put(self, key: str, value: str) -> None:
        """Keep a value."""

    @abstractmethod
    async def put_many(self, values: Mapping[str, str]) -> None:
        """Keep several values in one step."""

    async def get_or_set_time(self, key: str, now: Callable[[], datetime]) -> datetime:
        """The time kept under a key, or `now()`, which is kept from then on, in Unix seconds."""
        kept = await self.get(key)
        if kept is None:
            moment = now()
            await self.put(key, str(int(moment.timestamp())))
            return moment
        try:
            return datetime.fromtimestamp(int(kept), UTC)
        except (ValueError, OverflowError, OSError):
            raise StageFailedError(f"the metadata {key!r} is no time: {kept!r}") from None
