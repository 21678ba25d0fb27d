# SPDX-License-Identifier: Apache-2.0
"""Reads the descriptions of the plugins that are installed here, without running them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pipecd_model.known_plugins import PluginDescription

FILE: Final = "schemas.json"


def find_installed_plugins() -> dict[str, PluginDescription]:
    """Returns the installed plugins by their names; one with a broken description is left out."""
    from pipecd_model.known_plugins import parse_description  # noqa: PLC0415 - lint, simulate
    from pipecd_runtime.installed_plugins import list_installed_plugins  # noqa: PLC0415 - as above

    found: dict[str, PluginDescription] = {}
    for plugin in list_installed_plugins():
        try:
            file = _file_of(plugin.package, plugin.name)
            if file is not None:
                found[plugin.name] = parse_description(plugin.name, file.read_text("utf-8"))
        except (OSError, ValueError):
            continue
    return found


def _file_of(package: str, plugin: str) -> Path | None:
    """Returns the file of a plugin's description, without importing the package.

    A package with several plugins has one for each, with the name in front.
    """
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    names = (f"{plugin}.{FILE}", FILE)
    files = (Path(place, name) for name in names for place in places or ())
    return next((file for file in files if file.is_file()), None)
