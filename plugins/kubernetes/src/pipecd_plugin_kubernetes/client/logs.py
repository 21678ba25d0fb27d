# SPDX-License-Identifier: Apache-2.0
"""Logs of containers: their end, of bounded size."""

from collections import deque
from typing import Final

from pipecd_plugin_kubernetes.client.caller import Caller
from pipecd_plugin_kubernetes.client.requests import Request

LARGEST_LOG: Final = 1024 * 1024
"""Bytes that are returned: the last ones."""
MOST_READ: Final = 64 * 1024 * 1024
"""Bytes that are read; a line of a log may have any length."""


async def read_tail(caller: Caller, request: Request) -> str:
    """Returns the end of a log, in whole lines where it was cut."""
    kept: deque[bytes] = deque()
    size = read = 0
    async with caller.stream(request) as opened:
        async for chunk in opened.iter_chunks():
            kept.append(chunk)
            size += len(chunk)
            read += len(chunk)
            while size - len(kept[0]) >= LARGEST_LOG:
                size -= len(kept.popleft())
            if read >= MOST_READ:
                break
    whole = b"".join(kept)
    if read > LARGEST_LOG:
        whole = whole[-LARGEST_LOG:]
        whole = whole.partition(b"\n")[2] or whole
    return whole.decode("utf-8", "replace")
