# SPDX-License-Identifier: Apache-2.0
"""One analysis: looks at its interval, counts failures, and fails when there are too many.

Its looks have fixed times, from the start of the stage. Those that were missed while nobody was
there are made up for: a provider is asked for the window of that time. Only an address, whether it
is checked or answers with numbers, can not be asked about the past; of several missed looks at one
the last is made.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from pipecd_plugin_analysis.evaluation import Evaluation, LookVerdict, Window
from pipecd_plugin_analysis.provider.base import EvaluationError, NoDataError
from pipecd_plugin_analysis.record import AnalysisRecord
from pipecd_sdk import Clock, StageFailedError, StageLog
from pipecd_sdk.kit.analysis import HttpConfig, LogConfig, MetricConfig
from pipecd_sdk.kit.text import make_printable_line


class TooManyFailuresError(StageFailedError):
    """An analysis failed more often than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How one analysis looks once: a window in, a verdict out."""

    record: AnalysisRecord
    """What is known of it before its first look."""
    item: MetricConfig | LogConfig | HttpConfig
    evaluate: Callable[[Window], Awaitable[Evaluation]]
    """Raises EvaluationError when it cannot be told."""
    can_look_back: bool = True
    ended: str = ""
    """Why it does not look at all."""


class Analyzer:
    """Runs the looks of one analysis."""

    def __init__(
        self,
        look: Look,
        *,
        record: AnalysisRecord,
        clock: Clock,
        log: StageLog,
        save: Callable[[AnalysisRecord], Awaitable[None]],
    ) -> None:
        self._look = look
        self._clock = clock
        self._log = log.copy_with_prefix(f"[{look.record.id}] ")
        self._save = save
        self.record = record

    async def run(self, start: datetime) -> None:
        """Looks until its last look is made. Raises TooManyFailuresError."""
        item = self._look.item
        self._check_failures()
        if self._look.ended:
            self._log.info("%s", self._look.ended)
            self.record = msgspec.structs.replace(self.record, ended=self._look.ended)
            await self._save(self.record)
            return
        begun = self._clock.now()
        for number in range(self.record.done + 1, self.record.looks + 1):
            due = start + number * item.interval
            await self._clock.sleep_until(due)
            # Numbers are missed only while nobody was there, a check also by an answer that takes
            # longer than its interval.
            seen = begun if isinstance(item, MetricConfig) else self._clock.now()
            is_late = seen >= due + item.interval
            if is_late and not self._look.can_look_back and number < self.record.looks:
                self._log.info("the look of %s was missed", f"{due:%H:%M:%S}")
                continue
            evaluation = await self._evaluate(due)
            self.record = self.record.add(number, evaluation, window=item.failure_window or None)
            self._tell(evaluation)
            await self._save(self.record)
            self._check_failures()
        if self.record.looks and not self.record.values_seen and self.record.kind == "metric":
            self._log.info("WARNING: there was not a single value: is the query right?")

    async def _evaluate(self, due: datetime) -> Evaluation:
        item = self._look.item
        window = Window(start=due - item.interval, end=due)
        try:
            async with asyncio.timeout(item.timeout.total_seconds()):
                return await self._look.evaluate(window)
        except TimeoutError:
            return Evaluation(
                at=due, verdict=LookVerdict.ERROR, text=f"there was no answer within {item.timeout}"
            )
        except NoDataError as error:
            if isinstance(item, MetricConfig) and item.skip_on_no_data:
                return Evaluation(
                    at=due, verdict=LookVerdict.NO_DATA, text=f"no data, which is allowed: {error}"
                )
            return Evaluation(at=due, verdict=LookVerdict.ERROR, text=f"no data: {error}")
        except EvaluationError as error:
            return Evaluation(at=due, verdict=LookVerdict.ERROR, text=str(error))

    def _tell(self, evaluation: Evaluation) -> None:
        text = make_printable_line(evaluation.text)
        if evaluation.verdict.is_failure:
            limit = self._look.item.failure_limit
            self._log.error("failure %d, %d allowed: %s", self._count_failures(), limit, text)
        else:
            self._log.info("%s", text)
        if evaluation.warning:
            self._log.info("WARNING: %s", evaluation.warning)

    def _count_failures(self) -> int:
        return self.record.count_failures(window=self._look.item.failure_window or None)

    def _check_failures(self) -> None:
        count, limit = self._count_failures(), self._look.item.failure_limit
        if count <= limit:
            return
        last = next(
            (
                each.text
                for each in reversed(self.record.evaluations)
                if LookVerdict(each.verdict).is_failure
            ),
            "",
        )
        name = f" ({self.record.name})" if self.record.name else ""
        window: timedelta = self._look.item.failure_window
        within = f" within {window}" if window else ""
        raise TooManyFailuresError(
            f"{self.record.id}{name} failed {_times(count)}{within}, {limit} allowed; the last:"
            f" {make_printable_line(last)}"
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
