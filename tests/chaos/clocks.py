# SPDX-License-Identifier: Apache-2.0
"""The clocks that the programs of a site see: moved one by one, never the machine's own."""

import struct
from pathlib import Path

from chaos.schedule import PROGRAMS


class Clocks:
    """One file for each program, which it has mapped: a change is seen at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.environment = {"PIPECD_CHAOS_CLOCK": str(folder)}
        self.set_right()

    def move(self, what: str, seconds: float) -> None:
        """From now on, all programs of the kind see another time."""
        for program in PROGRAMS[what]:
            name = program if what != "plugin" else f"pipecd-plugin-{program}"
            file = self._folder / name
            with file.open("r+b" if file.exists() else "wb") as opened:
                opened.write(struct.pack("d", seconds))

    def set_right(self) -> None:
        """All see the machine's time."""
        for what in PROGRAMS:
            self.move(what, 0.0)
