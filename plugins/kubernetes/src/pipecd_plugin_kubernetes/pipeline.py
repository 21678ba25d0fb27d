# SPDX-License-Identifier: Apache-2.0
"""What the pipeline of an application file says: a stage may have to know about the others."""

from collections.abc import Iterator
from typing import Any

from pipecd_sdk import Source
from pipecd_sdk.kit import yaml


def list_stages(source: Source) -> list[tuple[str, dict[str, Any]]]:
    """Returns the names and options of a pipeline's stages; none when the file cannot be read.

    Piped has read the file before; whatever is wrong with it was said there.
    """
    try:
        document = yaml.load(source.config) if source.config else None
    except yaml.YamlError:
        return []
    stages = _find(document, "spec", "pipeline", "stages")
    found = [each for each in stages if isinstance(each, dict)] if isinstance(stages, list) else []
    return [(str(_find(each, "name")), _as_map(_find(each, "with"))) for each in found]


def has_stage(source: Source, ending: str) -> bool:
    """Returns whether the pipeline has a stage whose name ends so, e.g. `_TRAFFIC_ROUTING`."""
    return any(name.endswith(ending) for name, _ in list_stages(source))


def list_options(source: Source, ending: str, key: str) -> Iterator[Any]:
    """Yields the values that stages whose names end so give an option; None where it is missing."""
    for name, options in list_stages(source):
        if name.endswith(ending):
            yield _find(options, key)


def _find(tree: Any, *keys: str) -> Any:
    """Returns what stands below these keys, whatever their case."""
    for key in keys:
        if not isinstance(tree, dict):
            return None
        tree = next((value for each, value in tree.items() if each.lower() == key.lower()), None)
    return tree


def _as_map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
