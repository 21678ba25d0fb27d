# SPDX-License-Identifier: Apache-2.0
"""Faults: what is wrong in a file that a person wrote, with the place and a hint.

The loader collects faults while it reads and raises them all at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipecd_model.errors import ConfigError, add_hint

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong, and where. Lines and columns count from 1; 0 is the whole file."""

    file: str
    line: int = 0
    column: int = 0
    path: str = ""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        path = f" {self.path}:" if self.path else ""
        return add_hint(f"{place}:{path} {self.message}", self.hint)


def sort_faults(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Returns faults in the order of their lines and columns."""
    return tuple(sorted(faults, key=lambda fault: (fault.line, fault.column)))


class ConfigFaultsError(ConfigError):
    """A file cannot be used; carries everything that is wrong in it, and what is only odd."""

    def __init__(self, faults: Iterable[Fault], *, warnings: Iterable[Fault] = ()) -> None:
        self.faults = sort_faults(faults)
        self.warnings = sort_faults(warnings)
        super().__init__("\n".join(str(fault) for fault in self.faults), file=self.faults[0].file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """A file that can be used, and what its author should look at all the same."""

    config: T
    warnings: tuple[Fault, ...] = ()
