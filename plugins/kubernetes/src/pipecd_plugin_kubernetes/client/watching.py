# SPDX-License-Identifier: Apache-2.0
"""Watches: every change after a version, over streams that end and are opened again."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

import msgspec

from pipecd_plugin_kubernetes.client.caller import Caller
from pipecd_plugin_kubernetes.client.decoding import (
    Envelope,
    Head,
    decode_body,
    decode_slim,
    decode_with,
    make_decoder,
)
from pipecd_plugin_kubernetes.client.errors import ApiError, TooLargeError, UnavailableError
from pipecd_plugin_kubernetes.client.refusals import clean_message, read_status
from pipecd_plugin_kubernetes.client.requests import Request
from pipecd_plugin_kubernetes.client.resources import ChangeType, WatchEvent

STREAM_SECONDS: Final = (290, 590)
"""How long the server keeps a stream: not the same for all, so that they do not end at once."""
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Whatever a server asks for: what is shown gets older meanwhile."""
LONGEST_LINE: Final = 16 * 1024 * 1024
HEALTHY_SECONDS: Final = 5.0
"""A stream that lasted so long, or brought something, was no failure."""
AT_HAND_SECONDS: Final = 0.001
"""In which a chunk comes that has arrived already."""

_ENVELOPES: Final = msgspec.json.Decoder(Envelope)
_HEADS: Final = msgspec.json.Decoder(Head)
_STATUSES: Final = msgspec.json.Decoder(dict[str, Any])
_TYPES: Final = {each.value: each for each in ChangeType}


async def watch_changes(
    caller: Caller,
    request: Request,
    kind: Any,
    resource_version: str,
    *,
    gather_seconds: float = 0.0,
) -> AsyncGenerator[WatchEvent[Any], None]:
    """Yields changes and bookmarks; resumes what ends or breaks. Raises ApiError.

    After a change that it had to wait for it reads nothing for `gather_seconds`: to read one by one
    what comes in quick succession costs more than all that is done with it.
    """
    loop = asyncio.get_running_loop()
    backoff = caller.policy.make_backoff()
    version = resource_version
    while True:
        opened = loop.time()
        failure: UnavailableError | None = None
        try:
            async for event in _stream_once(caller, request, kind, version, gather_seconds):
                version = event.resource_version or version
                backoff.reset()
                yield event
        except UnavailableError as error:
            if error.is_permanent or backoff.failures + 1 >= caller.policy.most_attempts:
                raise
            failure = error
        if loop.time() - opened >= HEALTHY_SECONDS:
            backoff.reset()
        pause = backoff.next_pause_seconds()
        if failure is None and backoff.failures == 1:
            continue  # it ended as streams do
        if failure is not None:
            asked = min(failure.retry_after_seconds or 0.0, LONGEST_PAUSE_SECONDS)
            pause = max(pause, asked)
        await asyncio.sleep(pause)


async def _stream_once(
    caller: Caller, request: Request, kind: Any, version: str, gather_seconds: float
) -> AsyncIterator[WatchEvent[Any]]:
    asked = request.add_query(
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", version),
        ("timeoutSeconds", str(random.randint(*STREAM_SECONDS))),  # noqa: S311 - spreads load
    )
    decode = decode_slim if kind is dict else make_decoder(kind).decode
    lines = LineSplitter(asked.what)
    async with caller.stream(asked) as opened:
        async for chunk in gather(opened.iter_chunks(), gather_seconds):
            for line in lines.feed(chunk):
                yield read_event(asked.what, line, decode)


async def gather(chunks: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Yields chunks; after one that was waited for, the next ones are left to gather for a while.

    Never more than half of the time, so that nobody falls behind.
    """
    loop = asyncio.get_running_loop()
    rested = asked = loop.time()
    async for chunk in chunks:
        was_waited_for = loop.time() - asked >= AT_HAND_SECONDS
        yield chunk
        if was_waited_for and loop.time() - rested >= seconds > 0:
            await asyncio.sleep(seconds)
            rested = loop.time()
        asked = loop.time()


class LineSplitter:
    """Cuts what comes into lines of bounded length; what follows the last line end is kept."""

    def __init__(self, what: str, *, longest: int = LONGEST_LINE) -> None:
        self._what = what
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the lines that are whole now. Raises TooLargeError."""
        lines = chunk.split(b"\n")
        if self._size and len(lines) > 1:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts, self._size = [], 0
        rest = lines.pop()
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size > self._longest or any(len(each) > self._longest for each in lines):
            raise TooLargeError(
                f"cannot {self._what}: a change has more than {self._longest} bytes"
            )
        return [each for each in lines if each]


def read_event(what: str, line: bytes, decode: Callable[[Any], Any]) -> WatchEvent[Any]:
    """Returns the change of a line. Raises what an ERROR says, GoneError for example."""
    envelope: Envelope = decode_body(what, line, _ENVELOPES)
    kind = _TYPES.get(envelope.type)
    if kind is None:
        if envelope.type == "ERROR":
            raise read_status(what, decode_body(what, bytes(envelope.object), _STATUSES))
        raise ApiError(
            f"cannot {what}: an unknown type of change: {clean_message(envelope.type, 100)!r}"
        )
    raw = memoryview(envelope.object)
    body = None if kind is ChangeType.BOOKMARK else decode_with(what, raw, decode)
    version = _find_version(body)
    if version is None:
        version = decode_body(what, raw, _HEADS).metadata.resource_version
    return WatchEvent(kind, body, version)


def _find_version(body: object) -> str | None:
    """Returns the version of an object that was decoded whole; None when it is not seen there."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else None
