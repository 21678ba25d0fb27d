# SPDX-License-Identifier: Apache-2.0
"""What a migration gives back, and how it says that it cannot."""

from __future__ import annotations

from dataclasses import dataclass

from pipecd_model.config.fault import ConfigFaultsError, Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A file as it is written today, and what its author should look at."""

    text: str
    hazards: tuple[Fault, ...] = ()


def refusal(file: str, message: str, hint: str = "", *, line: int = 1) -> ConfigFaultsError:
    """Say that a file stays as it is."""
    return ConfigFaultsError([Fault(file=file, line=line, column=1, message=message, hint=hint)])


def not_the_same(file: str) -> ConfigFaultsError:
    """Say that rewriting the text would change what it says."""
    return refusal(
        file,
        "cannot be rewritten without changing what it says",
        "anchors, aliases and merged keys are in the way: write them out first",
    )
