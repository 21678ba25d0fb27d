# SPDX-License-Identifier: Apache-2.0
"""Constraints on options as data: the plugin refuses what breaks them, and `pipectl lint` does too.

A rule that these cannot express goes into the struct's `check`; only the plugin knows it then.

Example:
    class WaitConfig(StageConfig):
        constraints = (InRange(key="duration", minimum=1, message="too short: {value}"),)

        duration: Duration
"""

from pipecd_model.config.constraints import (
    AddsUp,
    AnyGiven,
    AtMostCount,
    Constraint,
    InRange,
    NotTogether,
)

__all__ = [
    "AddsUp",
    "AnyGiven",
    "AtMostCount",
    "Constraint",
    "InRange",
    "NotTogether",
    "limit_share",
]


def limit_share(key: str) -> InRange:
    """Returns the constraint of an option that is a share of the traffic, in percent.

    Example:
        constraints = (limit_share("canary"),)
    """
    message = "not a share of the traffic: {value}"
    return InRange(key=key, minimum=0, maximum=100, message=message, hint="0 to 100")
