# SPDX-License-Identifier: Apache-2.0
"""An error as its reader gets it: what failed, and what can be done about it."""

from pipecd_model.errors import PipecdError


def sentence(error: PipecdError) -> str:
    """The message with its hint: `no plugin offers the stage 'WIAT' (did you mean 'WAIT'?)`."""
    return f"{error} ({error.hint})" if error.hint else str(error)
