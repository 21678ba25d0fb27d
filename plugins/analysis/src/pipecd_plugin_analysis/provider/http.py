# SPDX-License-Identifier: Apache-2.0
"""What providers make of HTTP: JSON of systems that the operator names, and one client for both.

A hiccup of such a system gets a second try. What goes wrong is no error of the program but an
evaluation that cannot be made.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from pipecd_plugin_analysis.provider.base import EvaluationError
from pipecd_sdk.kit.hosts import HostNotAllowedError
from pipecd_sdk.kit.retries import Backoff
from pipecd_sdk.kit.web import WebAnswer, WebClient, WebError, show_address, show_text

LARGEST_ANSWER: Final = 16 * 1024 * 1024
ATTEMPTS: Final = 3
PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses that may be gone a moment later."""


async def request(
    web: WebClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: str = "",
) -> WebAnswer:
    """Returns the answer of an address that an application names. Raises EvaluationError."""
    async with _translate_errors():
        return await web.request(method, url, headers=headers, body=body.encode())


async def fetch_json(
    web: WebClient,
    method: str,
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    login: tuple[str, str] | None = None,
    body: bytes = b"",
) -> Any:
    """Returns the document that an address answers with. Raises EvaluationError."""
    pauses = Backoff(first_seconds=0.3, longest_seconds=2)
    for attempt in range(1, ATTEMPTS + 1):
        last = attempt == ATTEMPTS
        try:
            async with _translate_errors():
                answer = await web.request(
                    method, url, params=params, headers=headers, login=login, body=body
                )
        except EvaluationError:
            if last:
                raise
        else:
            if answer.status not in PASSING or last:
                return _read_document(url, answer)
        await asyncio.sleep(pauses.next_pause_seconds())
    raise AssertionError


@asynccontextmanager
async def _translate_errors() -> AsyncIterator[None]:
    try:
        yield
    except WebError as error:
        raise EvaluationError(str(error)) from None
    except HostNotAllowedError as error:
        raise EvaluationError(error.reason()) from None


def _read_document(url: str, answer: WebAnswer) -> Any:
    if answer.is_cut:
        raise EvaluationError(
            f"{show_address(url)} answers with more than {LARGEST_ANSWER:,} bytes"
        )
    if not 200 <= answer.status < 300:
        raise EvaluationError(
            f"{show_address(url)} answers with {answer.status}: {show_text(answer.text)}"
        )
    return read_json(url, answer.body)


def read_json(url: str, body: bytes) -> Any:
    """Reads JSON. Raises EvaluationError."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        shown = show_text(body[:1000].decode(errors="replace"))
        raise EvaluationError(f"{show_address(url)} answers with no JSON: {shown}") from None
