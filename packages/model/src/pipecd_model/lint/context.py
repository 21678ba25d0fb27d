# SPDX-License-Identifier: Apache-2.0
"""What the checks of a file are given: what is around it, and where their findings go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pipecd_model.config.decoder import Finding, Findings
from pipecd_model.config.path import Path
from pipecd_model.config.piped import PipedConfig
from pipecd_model.known_plugins import PluginDescription, load_known_plugins


class FileView(Protocol):
    """Paths are absolute, or relative to the folder of the file that is checked."""

    def is_inside(self, path: str, /) -> bool:
        """Returns whether the path stays within the repository."""

    def exists(self, path: str, /) -> bool:
        """Returns whether there is such a file."""

    def read(self, path: str, /) -> str | None:
        """Returns the file's text; None if there is no such file, or if it is no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintContext:
    """What is known beside the text; the more, the more can be checked."""

    files: FileView | None = None
    piped: PipedConfig | None = None
    """The piped that deploys the application."""
    templates: Collection[str] | None = None
    """The names of all analysis templates of the repository."""
    installed: Mapping[str, PluginDescription] = field(default_factory=dict)
    """The plugins that are installed here, by their names."""

    @property
    def plugins(self) -> Mapping[str, PluginDescription]:
        """All plugins that are known; what an installed one says of itself wins."""
        return {**load_known_plugins(), **self.installed}


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
        """Adds the faults and warnings of another check."""
        self._findings.faults += found.faults
        self._findings.warnings += found.warnings
