# SPDX-License-Identifier: Apache-2.0
"""Manifests that stand in the repository as they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.manifest import Manifest, parse_manifests
from pipecd_sdk import StageFailedError
from pipecd_sdk.repository import Folder, read_text

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_APPLICATION_FILES: Final = (".pipecd.yaml", ".pipecd.yml")
"""How application files end; several applications may share a folder."""


def read_plain(folder: Folder, names: Sequence[str] = ()) -> list[Manifest]:
    """Returns the manifests of the files that are named; of all in the folder when none is.

    Raises StageFailedError.
    """
    if names:
        paths = [folder.resolve(name, "the manifest file") for name in names]
    else:
        paths = list_files(folder)
    found: list[Manifest] = []
    for path in paths:
        shown = folder.show(path)
        found += parse_manifests(read_text(path, shown), origin=shown)
    if not found:
        raise StageFailedError(
            "there are no manifests in the files of the application",
            hint="it needs *.yaml, *.yml or *.json files, a kustomization, or input.helmChart",
        )
    return found


def list_files(folder: Folder) -> list[Path]:
    """Returns the files with manifests that are directly in the folder, sorted by name."""
    return [
        folder.resolve(entry.name, "the manifest file")
        for entry in sorted(folder.path.iterdir())
        if entry.suffix in _SUFFIXES
        and entry.name != folder.config_filename
        and not entry.name.endswith(_APPLICATION_FILES)
        and not entry.is_dir()
    ]
