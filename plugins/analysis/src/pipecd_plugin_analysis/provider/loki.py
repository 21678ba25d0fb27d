# SPDX-License-Identifier: Apache-2.0
"""Grafana Loki: matching lines, and metrics made of lines."""

from collections.abc import Iterator
from typing import Any, Final

from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.provider import prometheus
from pipecd_plugin_analysis.provider.base import EvaluationError, LogAnswer, MetricAnswer
from pipecd_plugin_analysis.provider.http import fetch_json
from pipecd_sdk.kit.web import WebClient, show_text

SHOWN_LINES: Final = 3


class Loki:
    """A Loki at an address."""

    def __init__(
        self, http: WebClient, address: str, *, tenant: str, login: tuple[str, str] | None
    ) -> None:
        self._http = http
        self._address = f"{address.rstrip('/')}/loki/api/v1/query_range"
        self._headers = {"X-Scope-OrgID": tenant} if tenant else {}
        self._login = login

    async def query(self, query: str, window: Window) -> MetricAnswer:
        parameters = prometheus.make_parameters(query, window)
        document = await self._fetch(parameters)
        if _read_kind(document) == "streams":
            raise EvaluationError(
                "the query gives lines, no numbers; name it under logs, or count them:"
                " count_over_time(…[1m])"
            )
        return prometheus.read_document(document)

    async def count_lines(self, query: str, window: Window, *, most: int) -> LogAnswer:
        limit = max(most + 1, SHOWN_LINES)
        document = await self._fetch(
            {
                "query": query,
                "start": str(int(window.start.timestamp() * 1_000_000_000)),
                "end": str(int(window.end.timestamp() * 1_000_000_000)),
                "limit": str(limit),
                "direction": "backward",
            }
        )
        if _read_kind(document) != "streams":
            raise EvaluationError("the query gives numbers, no lines; name it under metrics")
        lines = list(_list_lines(document["data"].get("result")))
        return LogAnswer(
            count=len(lines),
            has_more=len(lines) >= limit,
            lines=[show_text(each) for each in lines[:SHOWN_LINES]],
        )

    async def _fetch(self, parameters: dict[str, str]) -> Any:
        return await fetch_json(
            self._http,
            "GET",
            self._address,
            params=parameters,
            headers=self._headers,
            login=self._login,
        )


def _list_lines(result: Any) -> Iterator[str]:
    """Yields the lines of all streams. Raises EvaluationError: what is not understood is no sign
    that no line matches."""
    for stream in _require_list(result or []):
        if not isinstance(stream, dict):
            raise EvaluationError("the answer has no stream where one should be")
        for entry in _require_list(stream.get("values") or []):
            if not (isinstance(entry, list) and len(entry) > 1 and isinstance(entry[1], str)):
                raise EvaluationError("the answer has no pair of time and line where one should be")
            yield entry[1]


def _require_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise EvaluationError("the answer has no list of lines where one should be")
    return value


def _read_kind(document: Any) -> str:
    if not isinstance(document, dict) or document.get("status") != "success":
        raise EvaluationError("the query failed")
    data = document.get("data")
    if not isinstance(data, dict):
        raise EvaluationError("the answer has no data")
    return str(data.get("resultType"))
