# SPDX-License-Identifier: Apache-2.0
"""Get the program of a plugin anew for each of its processes, and give up when it shall stop.

Between `fetch`, which knows sources, and the supervisor, which knows processes.
"""

from collections.abc import Callable
from pathlib import Path

from pipecd_model.config import PluginConfig
from piped.plugins.download import DownloadLimits, shown
from piped.plugins.errors import SourceAwayError
from piped.plugins.fetch import Program, fetch
from piped.plugins.lifetime import Lifetime, OverError


class Getting:
    """The way of one plugin from its source."""

    def __init__(
        self,
        config: PluginConfig,
        folder: Path,
        limits: DownloadLimits,
        tell: Callable[[str], None],
    ) -> None:
        """`tell` is told how far it is."""
        self.in_vain = 0
        """How often in a row the source was away."""
        self._config = config
        self._folder = folder
        self._limits = limits
        self._tell = tell
        self._life = Lifetime()
        self._asked = False
        """Has the source been asked? Then another process needs no network."""

    async def program(self, *, anew: bool) -> Program | None:
        """What to start; None when it shall stop before that is there. Raises PluginError.

        `anew`: a person wants what the source has now.
        """
        self._tell(f"getting {shown(self._config.url) or 'the package'}")
        try:
            async with self._life.within():
                program = await fetch(
                    self._config,
                    self._folder,
                    ask=anew or not self._asked,
                    limits=self._limits,
                    tell=self._tell,
                )
        except OverError:
            return None
        except SourceAwayError:
            self.in_vain += 1
            raise
        self._asked = True
        self.in_vain = 0
        return program

    def stop(self) -> None:
        """Give up what is going on, and begin nothing else."""
        self._life.end()
