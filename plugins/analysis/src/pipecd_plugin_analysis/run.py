# SPDX-License-Identifier: Apache-2.0
"""One stage from its start to its verdict; continued where it was after a restart.

The time that it started is kept before anything is asked, so neither the end nor the looks move
when a process dies. `elapsedTime` is kept beside it as other agents do; a stage that one of those
has begun is continued from there.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pipecd_plugin_analysis.analyzer import Analyzer, Look, TooManyFailuresError
from pipecd_plugin_analysis.config import AnalysisOptions, AnalysisPluginConfig
from pipecd_plugin_analysis.looks import Looks
from pipecd_plugin_analysis.previous import FinishedAnalysis, add_result, find_previous
from pipecd_plugin_analysis.provider.open import Providers
from pipecd_plugin_analysis.record import LARGEST_RECORDS, AnalysisRecord, decode_record
from pipecd_plugin_analysis.templates import Analysed, resolve
from pipecd_sdk import (
    DISPLAY_KEY,
    Duration,
    Outcome,
    PipedError,
    Skip,
    StageContext,
    StageFailedError,
)
from pipecd_sdk.kit.analysis import MetricConfig
from pipecd_sdk.kit.skipping import run_unless_skipped

START: Final = "startTime"
ELAPSED: Final = "elapsedTime"
ATTEMPT: Final = "attempt"
"""Which attempt of the stage the rest belongs to: a stage that is run again begins anew."""
PREVIOUS: Final = "previousStartTime"
"""What PREVIOUS compares with, chosen once; empty when there is nothing."""
LATEST: Final = "latest-analysis-result"
ASK_AGAIN: Final = timedelta(seconds=15)
"""How long to wait before a control plane that was away is asked again."""


class AnalysisRun:
    """Runs all analyses of one ANALYSIS stage, and keeps their records."""

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
        await self._save_result()
        self._ctx.log.success("%s", self._summarise())
        return None

    async def _save_result(self) -> None:
        """Keeps with the application that this analysis has succeeded.

        A control plane that is away right now must not undo what was found to be good.
        """
        finished = FinishedAnalysis(
            start_time=int(self._start.timestamp()),
            deployment_id=self._ctx.deployment.id,
            stage_index=self._ctx.stage.index,
        )
        try:
            kept = await self._ctx.shared.get(LATEST)
            await self._ctx.shared.put(LATEST, add_result(kept, finished))
        except PipedError as error:
            self._ctx.log.info(
                "WARNING: the result could not be kept, so PREVIOUS of the next deployment compares"
                " with an earlier one: %s",
                error,
            )

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
        first_look = min(
            (
                self._start + each.item.interval
                for each in analysed
                if isinstance(each.item, MetricConfig) and each.item.strategy == "PREVIOUS"
            ),
            default=None,
        )
        made = Looks(
            providers,
            application=self._ctx.deployment.application_name,
            duration=self._options.duration,
            start=self._start,
            previous_start=await _read_previous(self._ctx, first_look) if first_look else None,
            attempt=self._ctx.stage.retried_count,
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
        await self._put({record.key: record.encode(largest), DISPLAY_KEY: self._summarise()})

    async def _save_summary(self, text: str) -> None:
        await self._put({DISPLAY_KEY: text[:500]})

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
    """Returns when this attempt of the stage was begun, whoever began it.

    To the millisecond, before and after a restart: the looks must not move.
    """
    attempt = str(ctx.stage.retried_count)
    is_same = (await ctx.metadata.get(ATTEMPT) or "0") == attempt
    kept = await ctx.metadata.get(START) if is_same else None
    if kept is not None:
        return _parse_start(kept)
    elapsed = _parse_elapsed(await ctx.metadata.get(ELAPSED)) if is_same else timedelta()
    start = f"{(ctx.clock.now() - elapsed).timestamp():.3f}".removesuffix(".000")
    await ctx.metadata.put_many({ATTEMPT: attempt, START: start})
    return _parse_start(start)


def _parse_start(text: str) -> datetime:
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError):
        raise StageFailedError(f"the metadata {START!r} is no time: {text!r}") from None


def _parse_elapsed(text: str | None) -> timedelta:
    try:
        return max(timedelta(), Duration.parse(text)) if text else timedelta()
    except ValueError:
        return timedelta()


async def _read_previous(ctx: StageContext, first_look: datetime) -> datetime | None:
    """Returns when the analysis was begun that this one is compared with.

    It is chosen once: a stage that comes back after its own result was kept must not find that.
    Nobody needs to know it before the first look: until then it is asked for again and again.
    """
    kept = await ctx.metadata.get(PREVIOUS)
    while kept is None:
        try:
            kept = await _choose_previous(ctx)
        except PipedError as error:
            if ctx.clock.now() >= first_look:
                raise
            ctx.log.info("The earlier analysis is not known, and is asked for again: %s", error)
            await ctx.clock.sleep_until(min(first_look, ctx.clock.now() + ASK_AGAIN))
    return datetime.fromtimestamp(int(kept), UTC) if kept.isdecimal() else None


async def _choose_previous(ctx: StageContext) -> str:
    found = find_previous(
        await ctx.shared.get(LATEST),
        deployment_id=ctx.deployment.id,
        stage_index=ctx.stage.index,
    )
    chosen = str(int(found.timestamp())) if found else ""
    await ctx.metadata.put(PREVIOUS, chosen)
    return chosen


def _choose_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the reason of several: a stage fails for one, a bug is shown as one."""
    failed, others = group.split(StageFailedError)
    return _find_first(others or failed or group)


def _find_first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
