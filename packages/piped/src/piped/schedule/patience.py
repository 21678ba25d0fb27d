# SPDX-License-Identifier: Apache-2.0
"""Questions to the control plane that a deployment cannot go on without.

One that is away is no fault of the deployment: it waits, and is stopped like any other that runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pipecd_model.errors import UnavailableError
from piped.oplog import logger

log = logger(__name__)

Answer = TypeVar("Answer")

ASK_AGAIN: Final = 1.0
"""Seconds between two tries, each of which takes a few itself."""


async def patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until there is an answer, or a refusal."""
    while True:
        try:
            return await ask()
        except UnavailableError as error:
            log.info("deployment.waits_for_controlplane", reason=str(error))
            await asyncio.sleep(ASK_AGAIN)
