# SPDX-License-Identifier: Apache-2.0
"""Value files that stand at an address: fetched by us, so that every step of the way is checked."""

import asyncio
import os
from pathlib import Path
from typing import Final

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.kit.web import WebClient, WebError

LARGEST: Final = 4 * 1024 * 1024
_SECONDS: Final = 30.0


async def fetch_values(address: str, hosts: Hosts, *, into: Path) -> Path:
    """Returns the file with what is at an address. Raises StageFailedError.

    Each host that the way leads over must be allowed, and is connected to where it was found.
    """
    what = "the value file"
    try:
        async with (
            asyncio.timeout(_SECONDS),
            WebClient(hosts, what=what, largest_bytes=LARGEST) as web,
        ):
            answer = await web.request("GET", address)
    except TimeoutError:
        raise StageFailedError(
            f"{what} {address[:200]!r}: there was no answer within {_SECONDS:g} s"
        ) from None
    except WebError as error:
        raise StageFailedError(f"{what}: {error}") from None
    if answer.status != 200:
        raise StageFailedError(f"{what} {address[:200]!r}: the server says {answer.status}")
    if answer.is_cut:
        raise StageFailedError(f"{what} {address[:200]!r} has more than {LARGEST} bytes")
    number = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(answer.body)
    return into
