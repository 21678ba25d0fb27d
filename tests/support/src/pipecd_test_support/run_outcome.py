# SPDX-License-Identifier: Apache-2.0
"""How a run of tests ended, noted for `tools/rerun_failed.py`: only failed tests can be run again.

A run that left processes behind, or did not come to its end, has failed whatever its tests did.
"""

from collections.abc import Sequence
from typing import Final

import pytest

NAME: Final = "pipecd/outcome"
"""Under which pytest's cache keeps it."""


def note_begin(config: pytest.Config) -> None:
    """Note that a run has begun: should it be killed, that is how it ended."""
    _note(config, pytest.ExitCode.INTERRUPTED, ())


def note_end(session: pytest.Session, left: Sequence[str]) -> None:
    """Note how a run has ended, and what it has left behind."""
    _note(session.config, session.exitstatus, left)


def _note(config: pytest.Config, status: int, left: Sequence[str]) -> None:
    if config.cache is not None:
        config.cache.set(NAME, {"status": int(status), "left": list(left)})
