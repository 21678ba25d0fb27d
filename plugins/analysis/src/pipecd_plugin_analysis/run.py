# SPDX-License-Identifier: Apache-2.0
"""One stage from its start to its verdict; continued where it was after a restart.

The time that it started is kept before anything is asked, so neither the end nor the looks move
when a process dies. `elapsedTime` is kept beside it as other agents do; a stage that one of those
has begun is continued from there.
"""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pipecd_plugin_analysis.analyzer import Analyzer, Look, TooManyFailuresError
from pipecd_plugin_analysis.config import AnalysisOptions, AnalysisPluginConfig
from pipecd_plugin_analysis.looks import Looks
from pipecd_plugin_analysis.provider.open import Providers
from pipecd_plugin_analysis.record import LARGEST_RECORDS, AnalysisRecord, decode_record
from pipecd_plugin_analysis.templates import Analysed, resolve
from pipecd_sdk import Duration, Outcome, PipedError, Skip, StageContext, StageFailedError
from pipecd_sdk.kit.skipping import run_unless_skipped

START: Final = "startTime"
ELAPSED: Final = "elapsedTime"
DISPLAY: Final = "pipecd/stage-display-metadata"
LATEST: Final = "latest-analysis-result"


class AnalysisRun:
    """One stage."""

    def __init__(
        self, ctx: StageContext, options: AnalysisOptions, config: AnalysisPluginConfig
    ) -> None:
        self._ctx = ctx
        self._options = options
        self._config = config
        self._start = ctx.clock.now()
        self._records: dict[str, AnalysisRecord] = {}
        self._has_warned = False

    async def run(self) -> Outcome | None:
        """Looks until the time is over, or somebody skips it. Raises StageFailedError."""
        self._start = await _read_start(self._ctx)
        try:
            who = await run_unless_skipped(self._ctx, self._analyse())
        except TooManyFailuresError as error:
            await self._save_summary(str(error))
            raise
        if who is not None:
            self._ctx.log.info("Skipped by %s", who)
            await self._save_summary(f"Skipped by {who}")
            return Skip
        await self._save_summary(self._summarise())
        result = json.dumps({"start_time": int(self._start.timestamp())})
        await self._ctx.shared.put(LATEST, result.encode())
        self._ctx.log.success("%s", self._summarise())
        return None

    async def _analyse(self) -> None:
        analysed = await resolve(self._ctx, self._options)
        async with Providers(self._config) as providers:
            looks = await self._make_looks(providers, analysed)
            for look in looks:
                kept = await self._ctx.metadata.get(look.record.key)
                self._records[look.record.id] = decode_record(kept, look.record)
            deadline = self._start + self._options.duration
            self._ctx.log.info(
                "Analysing for %s, until %s",
                self._options.duration,
                f"{deadline:%Y-%m-%d %H:%M:%S %Z}",
            )
            try:
                async with asyncio.TaskGroup() as tasks:
                    for look in looks:
                        tasks.create_task(self._make_analyzer(look).run(self._start))
                    tasks.create_task(self._ctx.clock.sleep_until(deadline))
            except BaseExceptionGroup as group:
                raise _choose_error(group) from None

    async def _make_looks(
        self, providers: Providers, analysed: Sequence[Analysed]
    ) -> Sequence[Look]:
        """Returns all looks. Raises StageFailedError with everything that is wrong with them."""
        made = Looks(
            providers,
            application=self._ctx.deployment.application_name,
            duration=self._options.duration,
            start=self._start,
            previous_start=await _read_previous(self._ctx),
        )
        looks: list[Look] = []
        faults: list[str] = []
        for each in analysed:
            try:
                looks.append(await made.make(each))
            except StageFailedError as error:
                faults.append(f"{each.id}: {error.reason()}")
        if faults:
            raise StageFailedError("\n".join(faults))
        return looks

    def _make_analyzer(self, look: Look) -> Analyzer:
        return Analyzer(
            look,
            record=self._records[look.record.id],
            clock=self._ctx.clock,
            log=self._ctx.log,
            save=self._save,
        )

    async def _save(self, record: AnalysisRecord) -> None:
        """Keeps what is known; an agent that cannot be asked right now does not fail the stage."""
        self._records[record.id] = record
        largest = LARGEST_RECORDS // max(len(self._records), 1)
        await self._put({record.key: record.encode(largest), DISPLAY: self._summarise()})

    async def _save_summary(self, text: str) -> None:
        await self._put({DISPLAY: text[:500]})

    async def _put(self, values: dict[str, str]) -> None:
        elapsed = Duration(seconds=(self._ctx.clock.now() - self._start).total_seconds())
        try:
            await self._ctx.metadata.put_many({**values, ELAPSED: str(elapsed)})
        except PipedError as error:
            if not self._has_warned:
                self._ctx.log.info("The numbers could not be kept with the stage: %s", error)
            self._has_warned = True

    def _summarise(self) -> str:
        done = sum(each.evaluated for each in self._records.values())
        failures = sum(each.all_failures for each in self._records.values())
        looks = "1 evaluation" if done == 1 else f"{done} evaluations"
        return f"{looks}, {failures or 'no'} {'failure' if failures == 1 else 'failures'}"


async def _read_start(ctx: StageContext) -> datetime:
    """Returns when the stage was begun, whoever began it."""
    now = ctx.clock.now()
    if await ctx.metadata.get(START) is None:
        now -= _parse_elapsed(await ctx.metadata.get(ELAPSED))
    return await ctx.metadata.get_or_set_time(START, lambda: now)


def _parse_elapsed(text: str | None) -> timedelta:
    try:
        return max(timedelta(), Duration.parse(text)) if text else timedelta()
    except ValueError:
        return timedelta()


async def _read_previous(ctx: StageContext) -> datetime | None:
    """Returns when the last successful analysis of this application was begun."""
    raw = await ctx.shared.get(LATEST)
    try:
        document = json.loads(raw) if raw else {}
        return datetime.fromtimestamp(int(document["start_time"]), UTC)
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return None


def _choose_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the reason of several: a stage fails for one, a bug is shown as one."""
    failed, others = group.split(StageFailedError)
    return _find_first(others or failed or group)


def _find_first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
