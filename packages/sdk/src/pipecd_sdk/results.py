# SPDX-License-Identifier: Apache-2.0
"""How a stage ends: what a handler returns or raises, and what becomes of it."""

from enum import Enum, IntEnum
from typing import Final

import msgspec

from pipecd_model.errors import PipecdError, add_hint


class StageStatus(IntEnum):
    """The status of a stage, with the numbers of the wire.

    Example:
        assert result.status is StageStatus.SUCCESS
    """

    NOT_STARTED_YET = 0
    RUNNING = 1
    SUCCESS = 2
    FAILURE = 3
    CANCELLED = 4
    SKIPPED = 5
    EXITED = 6


class Outcome(Enum):
    """What a handler may return; returning None means success.

    Example:
        async def plan(self, ctx: StageContext) -> Outcome | None:
            return None if await self.changes() else Exit
    """

    EXIT = StageStatus.EXITED
    SKIP = StageStatus.SKIPPED


Exit: Final = Outcome.EXIT
"""Success, and the rest of the pipeline is not needed: the deployment succeeds here."""

Skip: Final = Outcome.SKIP
"""This stage had nothing to do; the pipeline goes on."""


class StageFailedError(PipecdError):
    """The stage failed. The message is the reason that people see: in the stage log and beside it.

    Example:
        raise StageFailedError("the script ended with exit code 3")
    """

    def reason(self) -> str:
        """Returns the message with its hint."""
        return add_hint(self, self.hint)


class InvalidFileError(StageFailedError):
    """A file of the commit is wrong, and only its author can help: an invalid configuration.

    Example:
        raise InvalidFileError("service.yaml: spec is missing")
    """


class PipedError(PipecdError):
    """A call to piped failed. A handler that lets it through fails with its message as reason.

    Example:
        try:
            await ctx.metadata.put("progress", "50%")
        except PipedError as error:
            ctx.log.error("the progress was not saved: %s", error)
    """

    status = "UNAVAILABLE"


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage ended, and why.

    Example:
        result = await StageHarness(Wait()).run("WAIT", {"duration": "5m"})
        assert result == StageResult(status=StageStatus.SUCCESS)
    """

    status: StageStatus
    reason: str = ""
