# SPDX-License-Identifier: Apache-2.0
"""A stage log that a test can read, without a stage."""

import asyncio

from pipecd_sdk import Severity, StageLog


class RecordingLog(StageLog):
    """Keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.severities: list[Severity] = []
        self._logged = asyncio.Event()
        super().__init__(self)

    def append(self, severity: Severity, line: str) -> None:
        """Keeps a line."""
        self.lines.append(line)
        self.severities.append(severity)
        self._logged.set()

    async def wait_logged(self, text: str) -> None:
        """Waits until a line has this text. Raises TimeoutError after half a minute."""
        async with asyncio.timeout(30):
            while text not in self.text:
                self._logged.clear()
                await self._logged.wait()

    def set_next_index(self, index: int, at: float | None = None) -> None:
        """Numbers mean nothing here."""

    async def drain(self) -> None:
        """There is always room."""

    @property
    def text(self) -> str:
        """Returns all lines."""
        return "\n".join(self.lines)
