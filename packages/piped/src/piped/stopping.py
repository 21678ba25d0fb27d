# SPDX-License-Identifier: Apache-2.0
"""That piped shall stop, how urgently, and why: asked for by a signal, a command, or a failure."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pipecd_runtime.logs import logger

log = logger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """A wish to stop; the second one is a wish to stop at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        self.failure: Exception | None = None

    def ask(self, why: str) -> None:
        """Stop; asked again, stop at once."""
        if not self.asked.is_set():
            log.info("piped.stopping", why=why)
            self.asked.set()
        else:
            log.warning("piped.stopping_at_once", why=why)
            self.at_once.set()

    def fail(self, failure: Exception) -> None:
        """Stop, and end with this error."""
        self.failure = self.failure or failure
        if not self.asked.is_set():
            self.ask(f"failure: {failure}")

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT ask while the block runs."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.ask, f"signal {number.name}")
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
