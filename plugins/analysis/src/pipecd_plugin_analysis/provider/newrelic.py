# SPDX-License-Identifier: Apache-2.0
"""New Relic: NRQL through NerdGraph."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.provider.base import EvaluationError, MetricAnswer, read_values
from pipecd_plugin_analysis.provider.http import fetch_json
from pipecd_sdk.kit.web import WebClient

_GRAPHQL: Final = (
    "query($account: Int!, $nrql: Nrql!) "
    "{ actor { account(id: $account) { nrql(query: $nrql) { results } } } }"
)
_TIMED: Final = re.compile(r"\b(SINCE|UNTIL)\b", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`")
"""Texts and names of attributes, in which the words may stand."""
_NOT_VALUES: Final = frozenset(
    {"beginTimeSeconds", "endTimeSeconds", "timestamp", "facet", "inspectedCount"}
)


class NewRelic:
    """An account of New Relic."""

    def __init__(self, http: WebClient, address: str, *, account: int, api_key: str) -> None:
        self._http = http
        self._address = address.rstrip("/")
        self._account = account
        self._api_key = api_key

    async def query(self, query: str, window: Window) -> MetricAnswer:
        if _TIMED.search(_QUOTED.sub("''", query)):
            raise EvaluationError("the query has SINCE or UNTIL; the interval gives the time")
        since, until = (int(each.timestamp() * 1000) for each in (window.start, window.end))
        asked = {
            "query": _GRAPHQL,
            "variables": {
                "account": self._account,
                "nrql": f"{query} SINCE {since} UNTIL {until}",
            },
        }
        document = await fetch_json(
            self._http,
            "POST",
            f"{self._address}/graphql",
            headers={"API-Key": self._api_key, "Content-Type": "application/json"},
            body=json.dumps(asked).encode(),
        )
        return MetricAnswer(values=read_values(_list_values(document)))


def _list_values(document: Any) -> Iterator[object]:
    if not isinstance(document, dict):
        raise EvaluationError("the answer is no mapping")
    if errors := document.get("errors"):
        first = errors[0] if isinstance(errors, list) else errors
        said = first.get("message") if isinstance(first, dict) else first
        raise EvaluationError(f"the query failed: {str(said)[:300]}")
    found: Any = document
    for key in ("data", "actor", "account", "nrql", "results"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, list):
        raise EvaluationError("the answer has no results")
    for row in found:
        if not isinstance(row, dict):
            raise EvaluationError("a result is no mapping")
        yield from _list_numbers(row)


def _list_numbers(row: dict[str, Any]) -> Iterator[object]:
    """Yields the numbers of a row: percentiles and histograms are mappings of their own."""
    for key, value in row.items():
        if key in _NOT_VALUES or isinstance(value, bool):
            continue
        if isinstance(value, dict):
            yield from _list_numbers(value)
        elif isinstance(value, int | float):
            yield value
