# SPDX-License-Identifier: Apache-2.0
"""The schemas of the plugins that are installed beside us, found without running any of them."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pipecd_model.lint import PluginSchemas

_PREFIX: Final = "pipecd-plugin-"
FILE: Final = "schemas.json"


def plugin_schemas() -> dict[str, PluginSchemas]:
    """What installed plugins take, by their names; one that says it wrongly is passed over."""
    from pipecd_model.lint import PluginSchemas  # noqa: PLC0415 - others need not wait for it

    found: dict[str, PluginSchemas] = {}
    for each in distributions():
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"] or "").lower()
        if not name.startswith(_PREFIX):
            continue
        file = _file_of(name.replace("-", "_"))
        try:
            if file is not None:
                found[name.removeprefix(_PREFIX)] = PluginSchemas.of(file.read_text("utf-8"))
        except (OSError, ValueError):
            continue
    return found


def _file_of(package: str) -> Path | None:
    """Where a package keeps its schemas. Finding it does not import it."""
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return next((Path(place, FILE) for place in places or () if Path(place, FILE).is_file()), None)
