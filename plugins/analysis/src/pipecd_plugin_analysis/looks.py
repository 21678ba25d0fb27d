# SPDX-License-Identifier: Apache-2.0
"""How metrics, logs and addresses are looked at: queries rendered, providers opened."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from pipecd_plugin_analysis.analyzer import Look
from pipecd_plugin_analysis.arguments import BadQueryError, make_arguments, render_query
from pipecd_plugin_analysis.config import NO_PAST
from pipecd_plugin_analysis.evaluation import (
    Evaluation,
    LookVerdict,
    Window,
    judge_difference,
    judge_range,
)
from pipecd_plugin_analysis.mann_whitney import Alternative
from pipecd_plugin_analysis.provider.base import LogsProvider, MetricsProvider
from pipecd_plugin_analysis.provider.http import request
from pipecd_plugin_analysis.provider.open import Providers
from pipecd_plugin_analysis.record import AnalysisRecord
from pipecd_plugin_analysis.templates import Analysed
from pipecd_sdk import Duration, StageFailedError
from pipecd_sdk.kit.analysis import ExpectedConfig, HttpConfig, LogConfig, MetricConfig
from pipecd_sdk.kit.regex import compile_regex
from pipecd_sdk.kit.web import show_address, show_text

LONGEST_QUERY: Final = 1000
"""Characters of a query that are kept with the stage."""
SHORTLY_BEFORE: Final = (
    "the earlier analysis was begun so shortly before this one that the values it is compared with"
    " are partly of this one"
)
NO_PREVIOUS: Final = "there is no earlier analysis to compare with: it ends here"


class Looks:
    """Makes the looks of a stage."""

    def __init__(
        self,
        providers: Providers,
        *,
        application: str,
        duration: Duration,
        start: datetime,
        previous_start: datetime | None,
        attempt: int = 0,
    ) -> None:
        self._providers = providers
        self._application = application
        self._duration = duration
        self._start = start
        self._previous_start = previous_start
        self._attempt = attempt

    async def make(self, analysed: Analysed) -> Look:
        """Returns how one thing is looked at. Raises StageFailedError."""
        try:
            match analysed.item:
                case MetricConfig() as item:
                    return await self._make_metric(analysed, item)
                case LogConfig() as item:
                    return await self._make_log(analysed, item)
                case HttpConfig() as item:
                    return self._make_check(analysed, item)
        except BadQueryError as error:
            raise StageFailedError(str(error)) from None

    async def _make_metric(self, analysed: Analysed, item: MetricConfig) -> Look:
        provider = await self._providers.open_metrics(item.provider, json_path=item.json_path)
        is_canary = item.strategy in {"CANARY_BASELINE", "CANARY_PRIMARY"}
        variant = "canary" if is_canary else "primary"
        query = self._render(item.query or item.url, analysed, variant)
        evaluate: Callable[[Window], Awaitable[Evaluation]]
        knows_past = self._providers.knows_past(item.provider)
        ended = ""
        if item.strategy == "THRESHOLD":
            evaluate = _Threshold(provider, query, item.expected or ExpectedConfig())
        elif item.strategy == "PREVIOUS":
            if not knows_past:
                raise StageFailedError(NO_PAST)
            ended = NO_PREVIOUS if self._previous_start is None else ""
            shift = (self._previous_start or self._start) - self._start
            evaluate = _Difference(
                provider,
                (query, query),
                ("now", "the previous deployment"),
                item.deviation,
                shift=shift,
                not_after=self._start,
            )
        else:
            other = "baseline" if item.strategy == "CANARY_BASELINE" else "primary"
            second = self._render(item.query or item.url, analysed, other)
            evaluate = _Difference(provider, (query, second), ("canary", other), item.deviation)
        record = self._make_record(analysed, "metric", query, strategy=item.strategy)
        return Look(
            record=record, item=item, evaluate=evaluate, can_look_back=knows_past, ended=ended
        )

    async def _make_log(self, analysed: Analysed, item: LogConfig) -> Look:
        provider = await self._providers.open_logs(item.provider)
        query = self._render(item.query, analysed)
        record = self._make_record(analysed, "log", query)
        return Look(record=record, item=item, evaluate=_Lines(provider, query, item.max_matches))

    def _make_check(self, analysed: Analysed, item: HttpConfig) -> Look:
        url = self._render(item.url, analysed)
        headers = {each.key: self._render(each.value, analysed) for each in item.headers}
        check = _Check(self._providers, item, url, headers, self._render(item.body, analysed))
        record = self._make_record(analysed, "http", f"{item.method} {show_address(url)}")
        return Look(record=record, item=item, evaluate=check, can_look_back=False)

    def _render(self, text: str, analysed: Analysed, variant: str = "primary") -> str:
        given: Mapping[str, str] = {}
        if isinstance(analysed.item, MetricConfig):
            given = getattr(analysed.item, f"{variant}_args")
        arguments = make_arguments(
            application=self._application,
            variant=variant,
            variant_arguments=given,
            application_arguments=analysed.arguments,
        )
        return render_query(text, arguments, name=analysed.id)

    def _make_record(
        self, analysed: Analysed, kind: str, query: str, *, strategy: str = ""
    ) -> AnalysisRecord:
        item = analysed.item
        expected: dict[str, float] = {}
        if isinstance(item, MetricConfig) and item.expected and strategy == "THRESHOLD":
            given = {"min": item.expected.min, "max": item.expected.max}
            expected = {key: value for key, value in given.items() if value is not None}
        is_comparison = isinstance(item, MetricConfig) and strategy != "THRESHOLD"
        return AnalysisRecord(
            id=analysed.id,
            attempt=self._attempt,
            deviation=item.deviation if isinstance(item, MetricConfig) and is_comparison else "",
            name=analysed.name,
            kind=kind,
            strategy=strategy,
            query=query[:LONGEST_QUERY],
            expected=expected,
            interval_seconds=item.interval.total_seconds(),
            failure_limit=item.failure_limit,
            failure_window_seconds=item.failure_window.total_seconds(),
            looks=self._duration // item.interval,
        )


class _Threshold:
    """All values are in a range."""

    def __init__(self, provider: MetricsProvider, query: str, expected: ExpectedConfig) -> None:
        self._provider = provider
        self._query = query
        self._expected = expected

    async def __call__(self, window: Window) -> Evaluation:
        answer = await self._provider.query(self._query, window)
        found = judge_range(window.end, answer.values, self._expected)
        return _add_warnings(found, answer.warnings)


class _Difference:
    """Two samples do not differ."""

    def __init__(
        self,
        provider: MetricsProvider,
        queries: tuple[str, str],
        names: tuple[str, str],
        deviation: str,
        *,
        shift: timedelta = timedelta(),
        not_after: datetime | None = None,
    ) -> None:
        self._provider = provider
        self._queries = queries
        self._names = names
        self._deviation = Alternative(deviation)
        self._shift = shift
        self._not_after = not_after

    async def __call__(self, window: Window) -> Evaluation:
        before = Window(start=window.start + self._shift, end=window.end + self._shift)
        values = await self._provider.query(self._queries[0], window)
        control = await self._provider.query(self._queries[1], before)
        found = await asyncio.to_thread(
            judge_difference,
            window.end,
            values.values,
            control.values,
            names=self._names,
            deviation=self._deviation,
        )
        warnings = [*values.warnings, *control.warnings]
        if self._not_after is not None and before.end > self._not_after:
            warnings.insert(0, SHORTLY_BEFORE)
        return _add_warnings(found, warnings)


class _Lines:
    """No more lines match than may."""

    def __init__(self, provider: LogsProvider, query: str, most: int) -> None:
        self._provider = provider
        self._query = query
        self._most = most

    async def __call__(self, window: Window) -> Evaluation:
        found = await self._provider.count_lines(self._query, window, most=self._most)
        is_fine = found.count <= self._most
        more = "at least " if found.has_more else ""
        text = f"{more}{found.count} matching lines, {self._most} allowed"
        if not is_fine and found.lines:
            text += f"; e.g. {' | '.join(found.lines)}"
        verdict = LookVerdict.EXPECTED if is_fine else LookVerdict.UNEXPECTED
        return Evaluation(at=window.end, verdict=verdict, text=text, values=[float(found.count)])


class _Check:
    """An address answers as it should."""

    def __init__(
        self,
        providers: Providers,
        item: HttpConfig,
        url: str,
        headers: Mapping[str, str],
        body: str,
    ) -> None:
        self._providers = providers
        self._item = item
        self._url = url
        self._headers = headers
        self._body = body

    async def __call__(self, window: Window) -> Evaluation:
        answer = await request(
            self._providers.guarded,
            self._item.method,
            self._url,
            headers=self._headers,
            body=self._body,
        )
        fault = ""
        if answer.status != self._item.expected_code:
            fault = f"it answers {answer.status}, expected {self._item.expected_code}"
        elif self._item.expected_response and (
            answer.is_cut or answer.text.strip() != self._item.expected_response.strip()
        ):
            fault = (
                f"it answers {show_text(answer.text)!r},"
                f" expected {show_text(self._item.expected_response)!r}"
            )
        elif self._item.expected_response_pattern and not compile_regex(
            self._item.expected_response_pattern
        ).is_found_in(answer.text):
            fault = (
                f"the answer does not have {show_text(self._item.expected_response_pattern)!r}:"
                f" {show_text(answer.text)!r}"
            )
        return Evaluation(
            at=window.end,
            verdict=LookVerdict.UNEXPECTED if fault else LookVerdict.EXPECTED,
            text=fault or f"it answers {answer.status} as expected",
            values=[float(answer.status)],
        )


def _add_warnings(found: Evaluation, warnings: Iterable[str]) -> Evaluation:
    said = [found.warning, *(show_text(each) for each in warnings)]
    return replace(found, warning="; ".join(each for each in said if each))
