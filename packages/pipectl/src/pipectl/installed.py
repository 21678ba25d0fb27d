# SPDX-License-Identifier: Apache-2.0
"""Reads the descriptions of the plugins that are installed here, without running them."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pipecd_model.known_plugins import PluginDescription

_PREFIX: Final = "pipecd-plugin-"
FILE: Final = "schemas.json"


def find_installed_plugins() -> dict[str, PluginDescription]:
    """Returns the installed plugins by their names; one with a broken description is left out."""
    from pipecd_model.known_plugins import parse_description  # noqa: PLC0415 - lint, simulate

    found: dict[str, PluginDescription] = {}
    for each in distributions():
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"] or "").lower()
        if not name.startswith(_PREFIX):
            continue
        file = _file_of(name.replace("-", "_"))
        try:
            if file is not None:
                plugin = name.removeprefix(_PREFIX)
                found[plugin] = parse_description(plugin, file.read_text("utf-8"))
        except (OSError, ValueError):
            continue
    return found


def _file_of(package: str) -> Path | None:
    """Returns the file of a package's description, without importing the package."""
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return next((Path(place, FILE) for place in places or () if Path(place, FILE).is_file()), None)
