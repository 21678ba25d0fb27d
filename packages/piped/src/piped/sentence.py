# SPDX-License-Identifier: Apache-2.0
"""An error as its reader gets it: what failed, and what can be done about it."""

from typing import Final

from pipecd_model.errors import PipecdError

LONGEST_REASON: Final = 16 * 1024
"""Characters of a reason in a report: the control plane refuses one that is much longer, and what
it tells the end of would never end."""


def sentence(error: PipecdError) -> str:
    """The message with its hint: `no plugin offers the stage 'WIAT' (did you mean 'WAIT'?)`."""
    return shorten(f"{error} ({error.hint})" if error.hint else str(error))


def shorten(reason: str) -> str:
    """Cut a reason to what a report may hold."""
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
