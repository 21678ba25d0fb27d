# SPDX-License-Identifier: Apache-2.0
"""What is around a file that is checked: other files, the piped, the repository's templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pipecd_model.config.piped import PipedConfig
from pipecd_model.lint.schemas import PluginSchemas


class Files(Protocol):
    """Paths are absolute, or relative to the folder of the file that is checked."""

    def is_inside(self, path: str, /) -> bool:
        """Does it stay within the repository?"""

    def exists(self, path: str, /) -> bool:
        """Is there such a file?"""

    def read(self, path: str, /) -> str | None:
        """Give its text; None if there is none, or if it is no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside the text; the more, the more can be checked."""

    files: Files | None = None
    piped: PipedConfig | None = None
    """The piped that deploys the application."""
    templates: Collection[str] | None = None
    """The names of all analysis templates of the repository."""
    plugins: Mapping[str, PluginSchemas] = field(default_factory=dict)
    """What the plugins that are installed here take, by their names."""
