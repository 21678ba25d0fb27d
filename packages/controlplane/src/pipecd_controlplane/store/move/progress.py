# SPDX-License-Identifier: Apache-2.0
"""What a move tells while it works."""

from collections.abc import Mapping
from typing import Protocol

from pipecd_controlplane.store.move.tables import TableSize


class MoveProgress(Protocol):
    """Shows how far a move is."""

    def begin(self, step: str, sizes: Mapping[str, TableSize]) -> None:
        """Begins a step over tables of these sizes."""

    def advance(self, table: str, rows: int) -> None:
        """Counts rows of a table that are done."""

    def end(self) -> None:
        """Ends the step."""

    def say(self, line: str) -> None: ...
