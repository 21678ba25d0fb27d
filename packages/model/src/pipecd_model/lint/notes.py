# SPDX-License-Identifier: Apache-2.0
"""Where the checks of a file write down what they find."""

from __future__ import annotations

from pipecd_model.config.decoder import Finding, Findings
from pipecd_model.config.path import Path


class Notes:
    """Adds to what loading the same file finds."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def fault(self, path: Path, message: str, hint: str = "", *, on_key: bool = False) -> None:
        self._findings.faults.append(Finding(path=path, message=message, hint=hint, on_key=on_key))

    def warn(self, path: Path, message: str, hint: str = "", *, on_key: bool = False) -> None:
        self._findings.warnings.append(
            Finding(path=path, message=message, hint=hint, on_key=on_key)
        )

    def add(self, found: Findings) -> None:
        """Take over what somebody else found."""
        self._findings.faults += found.faults
        self._findings.warnings += found.warnings
