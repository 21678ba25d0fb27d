# SPDX-License-Identifier: Apache-2.0
"""Value files that stand at an address: fetched by us, so that every step of the way is checked."""

import os
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import httpx2

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit import text
from pipecd_sdk.kit.hosts import Hosts

LARGEST: Final = 4 * 1024 * 1024
_MOST_REDIRECTS: Final = 5
_SECONDS: Final = 30.0


async def fetch_values(address: str, hosts: Hosts, *, into: Path) -> Path:
    """Returns the file with what is at an address. Raises StageFailedError.

    Each host that the way leads over must be allowed.
    """
    try:
        async with httpx2.AsyncClient(follow_redirects=False, timeout=_SECONDS) as client:
            content = await _follow(client, address, hosts)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        said = text.make_printable_line(str(error) or type(error).__name__)
        raise StageFailedError(f"the value file {address[:200]!r}: {said}") from None
    number = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    return into


async def _follow(client: httpx2.AsyncClient, address: str, hosts: Hosts) -> bytes:
    here = address
    for _ in range(_MOST_REDIRECTS):
        await hosts.check(here, "the value file")
        async with client.stream("GET", here) as response:
            if response.is_redirect:
                here = urljoin(here, response.headers.get("location", ""))
                continue
            if response.status_code != 200:
                raise StageFailedError(
                    f"the value file {address[:200]!r}: the server says {response.status_code}"
                )
            content = b""
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LARGEST:
                    raise StageFailedError(
                        f"the value file {address[:200]!r} has more than {LARGEST} bytes"
                    )
            return content
    raise StageFailedError(
        f"the value file {address[:200]!r}: more than {_MOST_REDIRECTS} redirects"
    )
