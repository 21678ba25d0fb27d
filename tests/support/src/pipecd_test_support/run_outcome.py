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
    cache = getattr(config, "cache", None)  # missing with `-p no:cacheprovider`
    if cache is not None:
        noted = {"status": int(status), "left": list(left), "options": _list_options(config)}
        cache.set(NAME, noted)


def _list_options(config: pytest.Config) -> list[str]:
    """Returns the options without which a test that is named would not be run, or be another."""
    chosen = {"-m": config.option.markexpr, "--store": getattr(config.option, "store", None)}
    return [part for name, value in chosen.items() if value for part in (name, value)]
