# SPDX-License-Identifier: Apache-2.0
"""The request to shut piped down, by a signal, a command or a failure, and its urgency."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pipecd_runtime.logs import logger

log = logger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class ShutdownRequest:
    """A request to shut down gracefully; a second request means at once."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.immediate = asyncio.Event()
        self.failure: Exception | None = None

    def request(self, why: str) -> None:
        """Request a graceful shutdown; called again, an immediate one."""
        if not self.requested.is_set():
            log.info("piped.stopping", why=why)
            self.requested.set()
        else:
            log.warning("piped.stopping_at_once", why=why)
            self.immediate.set()

    def fail(self, failure: Exception) -> None:
        """Request a shutdown that ends with this error; the first error is kept."""
        self.failure = self.failure or failure
        if not self.requested.is_set():
            self.request(f"failure: {failure}")

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Request a shutdown on SIGTERM and SIGINT while the block runs."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.request, f"signal {number.name}")
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
