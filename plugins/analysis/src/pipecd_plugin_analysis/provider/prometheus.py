# SPDX-License-Identifier: Apache-2.0
"""Prometheus, and everything that answers like it: range queries, all series together."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.provider.base import (
    EvaluationError,
    MetricAnswer,
    NoDataError,
    choose_step_seconds,
    read_values,
)
from pipecd_plugin_analysis.provider.http import fetch_json
from pipecd_sdk.kit.web import WebClient


class Prometheus:
    """A Prometheus at an address."""

    def __init__(self, http: WebClient, address: str, login: tuple[str, str] | None) -> None:
        self._http = http
        self._address = address.rstrip("/")
        self._login = login

    async def query(self, query: str, window: Window) -> MetricAnswer:
        document = await fetch_json(
            self._http,
            "GET",
            f"{self._address}/api/v1/query_range",
            params=make_parameters(query, window),
            login=self._login,
        )
        return read_document(document)


def make_parameters(query: str, window: Window) -> dict[str, str]:
    """Returns the parameters of a range query."""
    return {
        "query": query,
        "start": f"{window.start.timestamp():.3f}",
        "end": f"{window.end.timestamp():.3f}",
        "step": f"{choose_step_seconds(window):g}",
    }


def read_document(document: Any) -> MetricAnswer:
    """Reads the answer of the API: scalar, vector and matrix. Raises EvaluationError."""
    if not isinstance(document, dict) or document.get("status") != "success":
        said = document.get("error") if isinstance(document, dict) else None
        raise EvaluationError(f"the query failed: {str(said or 'no reason is given')[:300]}")
    data = document.get("data")
    if not isinstance(data, dict):
        raise EvaluationError("the answer has no data")
    said = document.get("warnings")
    warnings = [str(each)[:300] for each in said[:5]] if isinstance(said, list) else []
    values = read_values(_list_values(data))
    return MetricAnswer(values=values, warnings=warnings)


def _list_values(data: Mapping[str, Any]) -> Iterator[object]:
    kind, result = data.get("resultType"), data.get("result")
    if kind in {"scalar", "string"}:
        yield _second(result)
        return
    if kind not in {"vector", "matrix"} or not isinstance(result, list):
        raise EvaluationError(f"the answer is of an unknown kind: {str(kind)[:50]!r}")
    for series in result:
        if kind == "vector":
            yield _second(series.get("value") if isinstance(series, dict) else None)
            continue
        points = series.get("values") if isinstance(series, dict) else None
        if not isinstance(points, list) or not points:
            raise NoDataError("a series has no values")
        for point in points:
            yield _second(point)


def _second(point: object) -> object:
    """Returns the value of a pair of time and value."""
    if isinstance(point, list) and len(point) == 2:
        return point[1]
    raise EvaluationError("the answer has no pair of time and value where one should be")
