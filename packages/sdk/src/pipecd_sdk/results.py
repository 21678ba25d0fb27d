# SPDX-License-Identifier: Apache-2.0
"""How a stage ends: what a handler returns or raises, and what becomes of it."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from pipecd_model.errors import PipecdError, add_hint


class StageStatus(IntEnum):
    """The state of a stage, with the numbers of the wire."""

    NOT_STARTED_YET = 0
    RUNNING = 1
    SUCCESS = 2
    FAILURE = 3
    CANCELLED = 4
    SKIPPED = 5
    EXITED = 6


class Outcome(Enum):
    """What a handler may return instead of nothing; nothing means success.

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
        """The message with its hint."""
        return add_hint(self, self.hint)


class PipedError(PipecdError):
    """piped did not answer or refused; a handler that lets it through fails with it as reason."""

    status = "UNAVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """How a stage ended, and why."""

    status: StageStatus
    reason: str = ""
