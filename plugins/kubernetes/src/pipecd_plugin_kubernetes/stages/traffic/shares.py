# SPDX-License-Identifier: Apache-2.0
"""What part of the traffic each variant gets."""

from dataclasses import dataclass
from typing import Final

from pipecd_plugin_kubernetes.stage_config import TrafficConfig

ALL: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Whole percentages; together they are 100."""

    primary: int
    canary: int = 0
    baseline: int = 0

    def __str__(self) -> str:
        return f"primary {self.primary}%, canary {self.canary}%, baseline {self.baseline}%"


def shares_of(config: TrafficConfig) -> Shares:
    """Returns the shares that a stage's options mean; what is left is the primary's."""
    if config.all:
        return Shares(**{"primary": 0, config.all: ALL})
    canary, baseline = int(config.canary or 0), int(config.baseline or 0)
    return Shares(primary=ALL - canary - baseline, canary=canary, baseline=baseline)


def split(total: int, shares: Shares) -> Shares:
    """Returns the parts of a total; what rounding leaves is the primary's.

    Example:
        >>> split(80, Shares(primary=60, canary=30, baseline=10))
        Shares(primary=48, canary=24, baseline=8)
    """
    canary = total * shares.canary // ALL
    baseline = total * shares.baseline // ALL
    return Shares(primary=total - canary - baseline, canary=canary, baseline=baseline)
