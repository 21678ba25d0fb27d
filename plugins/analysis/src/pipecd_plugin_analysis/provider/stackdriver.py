# SPDX-License-Identifier: Apache-2.0
"""Google Cloud: PromQL of Cloud Monitoring, filters of Cloud Logging."""

import json
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from pipecd_plugin_analysis.evaluation import Window
from pipecd_plugin_analysis.provider import prometheus
from pipecd_plugin_analysis.provider.base import EvaluationError, LogAnswer, MetricAnswer
from pipecd_plugin_analysis.provider.google import GoogleReader
from pipecd_plugin_analysis.provider.http import fetch_json
from pipecd_sdk.kit.web import WebClient, show_text

MOST_PAGES: Final = 20
"""A page may be empty although a later one is not."""
LARGEST_PAGE: Final = 1000
SHOWN_LINES: Final = 3


class Stackdriver:
    """A project of Google Cloud."""

    def __init__(
        self, http: WebClient, signed_in: GoogleReader, *, monitoring: str, logging: str
    ) -> None:
        self._http = http
        self._signed_in = signed_in
        self._monitoring = monitoring.rstrip("/")
        self._logging = logging.rstrip("/")

    async def query(self, query: str, window: Window) -> MetricAnswer:
        token, project = await self._signed_in.read_token()
        path = f"/v1/projects/{quote(project, safe='')}/location/global/prometheus/api/v1"
        document = await fetch_json(
            self._http,
            "GET",
            f"{self._monitoring}{path}/query_range",
            params=prometheus.make_parameters(query, window),
            headers={"Authorization": f"Bearer {token}"},
        )
        return prometheus.read_document(document)

    async def count_lines(self, query: str, window: Window, *, most: int) -> LogAnswer:
        asked: dict[str, Any] = {
            "filter": (
                f'({query})\ntimestamp>="{_format(window.start)}" timestamp<"{_format(window.end)}"'
            ),
            "orderBy": "timestamp desc",
            "pageSize": min(max(most + 1, SHOWN_LINES), LARGEST_PAGE),
        }
        entries: list[Any] = []
        for _ in range(MOST_PAGES):
            page = await self._fetch_entries(asked)
            found = page.get("entries") or []
            if not isinstance(found, list):
                raise EvaluationError("the answer has no list of entries")
            entries += found
            if len(entries) > most or not page.get("nextPageToken"):
                break
            asked["pageToken"] = page["nextPageToken"]
        else:
            raise EvaluationError(f"the logs have more than {MOST_PAGES} pages; narrow the filter")
        return LogAnswer(
            count=len(entries),
            has_more=bool(page.get("nextPageToken")),
            lines=[_show(each) for each in entries[:SHOWN_LINES]],
        )

    async def _fetch_entries(self, asked: dict[str, Any]) -> dict[str, Any]:
        token, project = await self._signed_in.read_token()
        document = await fetch_json(
            self._http,
            "POST",
            f"{self._logging}/v2/entries:list",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            body=json.dumps({"resourceNames": [f"projects/{project}"], **asked}).encode(),
        )
        if not isinstance(document, dict):
            raise EvaluationError("the answer is no mapping")
        return document


def _format(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _show(entry: Any) -> str:
    if not isinstance(entry, dict):
        return ""
    payload = entry.get("textPayload") or entry.get("jsonPayload") or entry.get("protoPayload")
    return show_text(payload if isinstance(payload, str) else json.dumps(payload))
