# SPDX-License-Identifier: Apache-2.0
"""Numbers in the JSON of any address: the operator's, or one that an application names."""

import re
from typing import Any
from urllib.parse import unquote

from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.jsonpath import NoSuchValueError, find_values, parse_path
from pipecd_plugin_analysis.provider.base import (
    EvaluationError,
    MetricAnswer,
    NoDataError,
    read_values,
)
from pipecd_plugin_analysis.provider.http import fetch_json, read_json, request
from pipecd_sdk.kit.web import WebClient, show_address, show_text


class JsonEndpoint:
    """An address of the operator; a query is what follows it."""

    def __init__(
        self, http: WebClient, address: str, *, headers: dict[str, str], path: str
    ) -> None:
        self._http = http
        self._address = address.rstrip("/")
        self._headers = headers
        self._path = path

    async def query(self, query: str, window: Window) -> MetricAnswer:
        if not query.startswith(("/", "?")):
            raise EvaluationError("a query of an HTTP provider begins with / or ?")
        if _climbs(query):
            raise EvaluationError("a query of an HTTP provider cannot have .. in its path")
        document = await fetch_json(
            self._http, "GET", f"{self._address}{query}", headers=self._headers
        )
        return read_numbers(document, self._path)


def _climbs(query: str) -> bool:
    """Returns whether a query would leave the operator's address, with the operator's headers."""
    path = query.partition("?")[0].partition("#")[0]
    for _ in range(3):  # some servers decode more than once
        path = unquote(path)
    return ".." in re.split(r"[/\\;]", path)


class ApplicationEndpoint:
    """Addresses that an application names; a query is a whole address."""

    def __init__(self, guarded: WebClient, *, path: str) -> None:
        self._guarded = guarded
        self._path = path

    async def query(self, query: str, window: Window) -> MetricAnswer:
        answer = await request(self._guarded, "GET", query, headers={"Accept": "application/json"})
        if answer.status != 200:
            raise EvaluationError(
                f"{show_address(query)} answers with {answer.status}: {show_text(answer.text)}"
            )
        if answer.is_cut:
            raise EvaluationError(f"{show_address(query)} answers with too much")
        return read_numbers(read_json(query, answer.body), self._path)


def read_numbers(document: Any, path: str) -> MetricAnswer:
    """Returns the numbers that a path leads to. Raises NoDataError when there is nothing."""
    try:
        found = find_values(document, parse_path(path or "$"))
    except NoSuchValueError as error:
        raise NoDataError(str(error)) from None
    return MetricAnswer(values=read_values(each for each in found if each is not None))
