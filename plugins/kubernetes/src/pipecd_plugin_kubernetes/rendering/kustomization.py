# SPDX-License-Identifier: Apache-2.0
"""Looks through kustomizations before kustomize does: what they read, and what they would fetch.

Files must be in the repository, addresses at allowed hosts. Kustomizations that a base in the
repository names are looked through too; those that are fetched are not, which is why nothing that
is fetched may be read with wider rights (`--load-restrictor LoadRestrictionsNone`).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit import yaml
from pipecd_sdk.kit.hosts import Hosts, parse_address
from pipecd_sdk.repository import Folder, read_text, resolve_within

NAMES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
MOST_KUSTOMIZATIONS: Final = 500

_LISTS: Final = frozenset(
    {"resources", "bases", "components", "crds", "configurations", "patchesstrategicmerge"}
)
"""Fields that are lists of files, folders or addresses."""
_PLUGINS: Final = frozenset({"generators", "transformers", "validators"})
"""The same, of files that say what else is read."""
_FIELDS: Final = frozenset(
    {
        "path",
        "files",
        "envs",
        "env",
        "valuesfile",
        "additionalvaluesfiles",
        "values",
        "charthome",
        "confighome",
        "repo",
        "chartrepourl",
    }
)
"""Fields of the entries below, and of what plugins are told, that are paths or addresses."""
_ENTRIES: Final = frozenset(
    {
        "patches",
        "patchesjson6902",
        "replacements",
        "openapi",
        "configmapgenerator",
        "secretgenerator",
        "helmcharts",
        "helmchartinflationgenerator",
        "helmglobals",
    }
)
_HTTP: Final = ("https", "http")
_CHARTS: Final = (*_HTTP, "oci")


def find_kustomization(folder: Path) -> Path | None:
    """Returns the kustomization of a folder, None when it has none."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


@dataclass(slots=True, kw_only=True)
class Inspection:
    """What kustomizations read and fetch, as far as it was followed."""

    folder: Folder
    addresses: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    """What names it, the address, and the schemes that it may have."""
    _seen: set[Path] = field(default_factory=set)

    def read(self, start: Path) -> None:
        """Follows a kustomization and all that it names. Raises StageFailedError."""
        pending = [start]
        while pending:
            here = pending.pop()
            if here in self._seen:
                continue
            self._seen.add(here)
            if len(self._seen) > MOST_KUSTOMIZATIONS:
                raise StageFailedError(f"more than {MOST_KUSTOMIZATIONS} kustomizations")
            file = find_kustomization(here)
            if file is not None:
                pending += self._read_one(here, file)

    def _read_one(self, here: Path, file: Path) -> Iterator[Path]:
        shown = self.folder.show(file)
        real = self.folder.resolve(file.name, "the kustomization", start=here)
        for key, value in _read_map(real, shown).items():
            # The keys are matched without case, as kustomize does.
            name = str(key).lower()
            if name in _LISTS | _PLUGINS:
                for text in _list_texts(value):
                    yield from self._read_item(here, text, f"{shown}: {key}", name in _PLUGINS)
            elif name in _ENTRIES:
                self._read_fields(here, value, f"{shown}: {key}")

    def _read_item(self, here: Path, text: str, what: str, is_plugin: bool) -> Iterator[Path]:
        """Notes one file, folder or address, or what stands in place; yields the folder."""
        inline = _read_inline(text)
        if inline is not None:
            if is_plugin:
                self._read_fields(here, inline, what)
            return
        path = self._note(here, text, what)
        if path is not None and path.is_dir():
            yield path
        elif path is not None and is_plugin:
            # What a generator or transformer is told is in the file.
            try:
                documents = yaml.load_all(read_text(path, what))
            except yaml.YamlError as error:
                raise StageFailedError(f"{what}: {error}") from None
            self._read_fields(path.parent, documents, what)

    def _read_fields(self, here: Path, tree: Any, what: str) -> None:
        pending = [tree]
        while pending:
            each = pending.pop()
            if isinstance(each, list):
                pending += each
            elif isinstance(each, dict):
                for key, value in each.items():
                    name = str(key).lower()
                    if name in _FIELDS and isinstance(value, str | list):
                        for text in _list_texts(value):
                            self._note_field(here, name, text, f"{what}.{key}")
                    else:
                        pending.append(value)

    def _note_field(self, here: Path, name: str, text: str, what: str) -> None:
        if name in {"repo", "chartrepourl"}:
            self.addresses.append((what, text, _CHARTS))
        elif name == "files" and "=" in text:
            self._note(here, text.partition("=")[2], what)
        else:
            self._note(here, text, what)

    def _note(self, here: Path, text: str, what: str) -> Path | None:
        """Returns the path that a text means; notes an address; None for neither."""
        if "\n" in text or not text:
            return None
        if "://" not in text:
            path = resolve_within(self.folder.root, here, text, what, "the repository")
            if path.exists():
                return path
        if parse_address(text) is None:
            if not _is_short_address(text):
                return None  # kustomize says that it is not there
            text = f"https://{text}"
        self.addresses.append((what, text, _HTTP))
        return None


async def inspect_kustomization(folder: Folder, start: Path, hosts: Hosts) -> bool:
    """Returns whether a kustomization would fetch something. Raises StageFailedError.

    The error names the file, the field, and what it names that may not be read or fetched.
    """
    inspection = Inspection(folder=folder)
    await asyncio.to_thread(inspection.read, start)
    for what, address, schemes in inspection.addresses:
        await hosts.check(address, what, schemes=schemes)
    return bool(inspection.addresses)


def _read_inline(text: str) -> Any:
    """Returns the maps that stand in the place of a path; None when it is one."""
    try:
        found = [each for each in yaml.load_all(text) if isinstance(each, dict)]
    except yaml.YamlError:
        return None
    return found or None


def _is_short_address(text: str) -> bool:
    """Returns whether this is an address without a scheme, e.g. `github.com/org/repo//base`."""
    host, slash, _ = text.partition("/")
    return bool(slash) and "." in host.strip(".")


def _read_map(file: Path, shown: str) -> dict[str, Any]:
    try:
        found = yaml.load(read_text(file, shown))
    except yaml.YamlError as error:
        raise StageFailedError(f"{shown}: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise StageFailedError(f"{shown}: a kustomization must be a map")
    return found


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
