# SPDX-License-Identifier: Apache-2.0
"""Which lines of the server's log are folded: those that callers can cause at will."""

import logging
from typing import Final

from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_runtime.logfold import FoldRepeats

OF_CALLERS: Final = (
    "asyncio",
    "pipecd_controlplane.auth",
    "pipecd_controlplane.http",
    "grpc",
    "pipecd_wire",
    "uvicorn",
)
ALWAYS: Final = frozenset({"sign_in.done"})
"""Events that only authenticated callers cause; each of them is written."""


def fold_lines_of_callers(limits: FrontLimitsConfig) -> FoldRepeats:
    """Adds a filter that folds repeated lines to all handlers of the log; returns it."""
    folded = FoldRepeats(
        OF_CALLERS, always=ALWAYS, burst=limits.log_burst, interval=limits.log_interval
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(folded)
    return folded
