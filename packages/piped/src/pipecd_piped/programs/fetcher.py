# SPDX-License-Identifier: Apache-2.0
"""Fetches a program before each start of a process, until `stop`.

It stands between `fetch`, which knows sources, and a supervisor, which knows processes.
"""

from collections.abc import Callable
from pathlib import Path

from pipecd_piped.programs.cancel_group import CancelGroup, GroupEndedError
from pipecd_piped.programs.download import DownloadLimits, redact_url
from pipecd_piped.programs.errors import SourceAwayError
from pipecd_piped.programs.fetch import FetchedProgram, fetch
from pipecd_piped.programs.source import ProgramSource


class ProgramFetcher:
    """Fetches one program before each start of a process."""

    def __init__(
        self,
        source: ProgramSource,
        folder: Path,
        limits: DownloadLimits,
        on_progress: Callable[[str], None],
    ) -> None:
        """`on_progress` is called with the progress as a text."""
        self.failures = 0
        """How often in a row the source could not be reached."""
        self._source = source
        self._folder = folder
        self._limits = limits
        self._on_progress = on_progress
        self._stop = CancelGroup()
        self._asked = False
        """Whether the source was reached once; then a restart needs no network."""

    async def fetch(self, *, refresh: bool) -> FetchedProgram | None:
        """Returns the program to start, or None after `stop`. Raises ProgramError.

        With `refresh`, the source is checked again for a newer version.
        """
        self._on_progress(f"getting {redact_url(self._source.url) or 'the package'}")
        try:
            async with self._stop.scope():
                program = await fetch(
                    self._source,
                    self._folder,
                    ask=refresh or not self._asked,
                    limits=self._limits,
                    on_progress=self._on_progress,
                )
        except GroupEndedError:
            return None
        except SourceAwayError:
            self.failures += 1
            raise
        self._asked = True
        self.failures = 0
        return program

    def stop(self) -> None:
        """Cancel the running fetch, and start no other."""
        self._stop.end()
