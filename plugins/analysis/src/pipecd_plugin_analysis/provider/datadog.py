# SPDX-License-Identifier: Apache-2.0
"""Datadog: timeseries points of the API v1."""

from collections.abc import Iterator
from typing import Any

from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.provider.base import (
    EvaluationError,
    MetricAnswer,
    NoDataError,
    read_values,
)
from pipecd_plugin_analysis.provider.http import fetch_json
from pipecd_sdk.kit.web import WebClient


class Datadog:
    """An account of Datadog."""

    def __init__(
        self, http: WebClient, address: str, *, api_key: str, application_key: str
    ) -> None:
        self._http = http
        self._address = address.rstrip("/") if "://" in address else f"https://api.{address}"
        self._headers = {"DD-API-KEY": api_key, "DD-APPLICATION-KEY": application_key}

    async def query(self, query: str, window: Window) -> MetricAnswer:
        document = await fetch_json(
            self._http,
            "GET",
            f"{self._address}/api/v1/query",
            params={
                "from": str(int(window.start.timestamp())),
                "to": str(int(window.end.timestamp())),
                "query": query,
            },
            headers=self._headers,
        )
        return MetricAnswer(values=read_values(_list_values(document)))


def _list_values(document: Any) -> Iterator[object]:
    if not isinstance(document, dict):
        raise EvaluationError("the answer is no mapping")
    if document.get("error"):
        raise EvaluationError(f"the query failed: {str(document['error'])[:300]}")
    all_series = document.get("series")
    if not isinstance(all_series, list):
        raise EvaluationError("the answer has no series")
    for series in all_series:
        points = series.get("pointlist") if isinstance(series, dict) else None
        if not isinstance(points, list) or not points:
            raise NoDataError("a series has no points")
        for point in points:
            if not isinstance(point, list) or len(point) != 2:
                raise EvaluationError("the answer has no pair of time and value")
            if point[1] is not None:  # a gap in the series
                yield point[1]
