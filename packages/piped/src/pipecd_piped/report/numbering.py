# SPDX-License-Identifier: Apache-2.0
"""Renumbers the log lines of plugins that restart their numbers with each run of a stage.

The control plane identifies a line by its number and keeps the first of two. A plugin made with our
SDK never uses a number twice; another plugin may count from the second at which its stage began, so
that a second run repeats the numbers of the first, and its lines are lost. So each run gets numbers
of its own here, above those of all earlier runs, also of runs under an earlier piped.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipecd_piped.report.masked import Logs
from pipecd_piped.report.spool import StageKey
from pipecd_runtime.logs import logger
from pipecd_wire.model.logblock_pb2 import LogBlock

log = logger(__name__)

MOST_LINES: Final = 1_000_000_000
"""The lines of one run of a stage: the next run begins so far above its first number."""

KEEP_DAYS: Final = 30
"""How long the first numbers are kept of a deployment whose end was not reported."""

MOST_STAGES: Final = 1000
"""Stages of one process whose numbers are remembered."""


def now_microseconds() -> int:
    """Returns the time in microseconds: a first number above any that counts in seconds."""
    return time.time_ns() // 1000


class LineNumbers:
    """The first numbers of the runs of all stages; on disk, one file per deployment."""

    def __init__(
        self, folder: Path | None = None, clock: Callable[[], int] = now_microseconds
    ) -> None:
        """Without a folder only the clock keeps numbers above those of an earlier piped."""
        self._folder = folder
        self._clock = clock
        self._firsts: dict[str, dict[str, int]] = {}

    def begin(self, key: StageKey) -> int:
        """Returns the first number of the next run of a stage, and stores it."""
        stage = f"{key.stage_id}/{key.retried_count}"
        firsts = self._get_firsts(key.deployment_id)
        first = max(self._clock(), firsts.get(stage, -MOST_LINES) + MOST_LINES)
        firsts[stage] = first
        self._keep(key.deployment_id, firsts)
        return first

    def forget(self, deployment_id: str) -> None:
        """Delete the numbers of a deployment that has ended."""
        self._firsts.pop(deployment_id, None)
        if self._folder is not None:
            with suppress(OSError):
                self._file(self._folder, deployment_id).unlink()

    def prune(self) -> None:
        """Delete the files of deployments that are older than `KEEP_DAYS`."""
        oldest = time.time() - KEEP_DAYS * 24 * 3600
        with suppress(OSError):
            for file in self._folder.iterdir() if self._folder is not None else ():
                if file.stat().st_mtime < oldest:
                    file.unlink()

    def _get_firsts(self, deployment_id: str) -> dict[str, int]:
        if deployment_id not in self._firsts:
            self._firsts[deployment_id] = self._read(deployment_id)
        return self._firsts[deployment_id]

    def _read(self, deployment_id: str) -> dict[str, int]:
        if self._folder is None:
            return {}
        try:
            kept = json.loads(self._file(self._folder, deployment_id).read_text())
            return {str(stage): int(first) for stage, first in kept.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("stage_log.numbers_lost", deployment=deployment_id, reason=str(error))
            return {}

    def _keep(self, deployment_id: str, firsts: dict[str, int]) -> None:
        if self._folder is None:
            return
        file = self._file(self._folder, deployment_id)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(".new")
            new.write_text(json.dumps(firsts))
            new.replace(file)
        except OSError as error:
            # The clock alone gives higher numbers too, unless it is set back.
            log.warning("stage_log.numbers_not_saved", deployment=deployment_id, reason=str(error))

    @staticmethod
    def _file(folder: Path, deployment_id: str) -> Path:
        return folder / hashlib.sha256(deployment_id.encode()).hexdigest()[:32]


class RenumberedLogs:
    """Passes on the logs of one plugin process, renumbered for each of its stages."""

    def __init__(self, logs: Logs, numbers: LineNumbers, is_wanted: Callable[[], bool]) -> None:
        """`is_wanted` returns whether lines need new numbers; otherwise they keep theirs."""
        self._logs = logs
        self._numbers = numbers
        self._is_wanted = is_wanted
        self._shifts: dict[StageKey, int] = {}

    async def report(self, key: StageKey, blocks: Iterable[LogBlock]) -> None:
        """Pass on lines of a stage, renumbered where that is needed."""
        await self._logs.report(key, self._renumber(key, blocks))

    async def checkpoint(
        self, key: StageKey, blocks: Iterable[LogBlock], *, completed: bool
    ) -> None:
        """Pass on all lines of a stage since its last checkpoint."""
        await self._logs.checkpoint(key, self._renumber(key, blocks), completed=completed)

    def _renumber(self, key: StageKey, blocks: Iterable[LogBlock]) -> list[LogBlock]:
        given = list(blocks)
        if not given or not self._is_wanted():
            return given
        if key not in self._shifts:
            self._shifts[key] = self._numbers.begin(key) - given[0].index
            if len(self._shifts) > MOST_STAGES:
                del self._shifts[next(iter(self._shifts))]
        return list(_shift(given, self._shifts[key]))


def _shift(blocks: Iterable[LogBlock], shift: int) -> Iterator[LogBlock]:
    for block in blocks:
        moved = LogBlock()
        moved.CopyFrom(block)
        moved.index = block.index + shift
        yield moved
