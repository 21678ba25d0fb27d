# SPDX-License-Identifier: Apache-2.0
"""Which lines of the server's log are folded: those that anybody outside can cause."""

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
"""Events that only somebody known can cause, each of which matters."""


def fold_lines_of_callers(limits: FrontLimitsConfig) -> FoldRepeats:
    """Hold back what repeats, in all handlers of the log."""
    folded = FoldRepeats(
        OF_CALLERS, always=ALWAYS, burst=limits.log_burst, interval=limits.log_interval
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(folded)
    return folded
