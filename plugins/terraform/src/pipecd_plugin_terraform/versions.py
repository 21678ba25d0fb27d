# SPDX-License-Identifier: Apache-2.0
"""The versions that a commit deploys: of its modules, and of the providers that it has locked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipecd_plugin_terraform.hcl import HclBlock, HclError, read_blocks
from pipecd_sdk import StageFailedError, Version
from pipecd_sdk.kit.text import make_printable_line
from pipecd_sdk.repository import Folder, read_text

LOCK_FILE: Final = ".terraform.lock.hcl"
MOST_FILES: Final = 1_000
UNKNOWN: Final = "unknown"
_LONGEST: Final = 200


def find_versions(folder: Folder) -> list[Version]:
    """Returns the versions of modules and providers. Raises StageFailedError.

    A configuration without either has one version, `unknown`.
    """
    files = sorted([*folder.path.glob("*.tf"), *folder.path.glob("*.tf.json")])[:MOST_FILES]
    if not files:
        raise StageFailedError(
            "there is no Terraform file in the application's folder", hint="files end in .tf"
        )
    found = [each for file in files for each in _read_modules(_resolve(folder, file.name))]
    if (folder.path / LOCK_FILE).is_file():
        found += _read_providers(_resolve(folder, LOCK_FILE))
    return found or [Version(name=UNKNOWN, version=UNKNOWN)]


def _resolve(folder: Folder, name: str) -> Path:
    return folder.resolve(name, "the file")


def _read_modules(file: Path) -> Iterator[Version]:
    text = read_text(file, repr(file.name))
    if file.name.endswith(".json"):
        yield from _read_json_modules(file.name, text)
        return
    for block in _blocks(file.name, text):
        if block.kind == "module" and block.labels:
            yield _module(
                block.labels[0],
                block.attributes.get("version", ""),
                block.attributes.get("source", ""),
            )


def _read_json_modules(name: str, text: str) -> Iterator[Version]:
    try:
        modules: Any = json.loads(text).get("module", {})
        for module, body in modules.items() if isinstance(modules, dict) else ():
            one = body[0] if isinstance(body, list) and body else body
            if isinstance(one, dict):
                yield _module(module, str(one.get("version", "")), str(one.get("source", "")))
    except (ValueError, AttributeError, RecursionError) as error:
        raise StageFailedError(f"{name!r} is not a Terraform file in JSON") from error


def _read_providers(file: Path) -> Iterator[Version]:
    for block in _blocks(file.name, read_text(file, repr(file.name))):
        if block.kind == "provider" and block.labels and block.attributes.get("version"):
            source = _plain(block.labels[0])
            yield Version(
                name=source.rpartition("/")[2],
                version=_plain(block.attributes["version"]),
                url=source,
            )


def _blocks(name: str, text: str) -> list[HclBlock]:
    try:
        return read_blocks(text)
    except HclError as error:
        raise StageFailedError(f"{name!r} {error}", hint="terraform validate says more") from error


def _module(name: str, version: str, source: str) -> Version:
    return Version(name=_plain(name), version=_plain(version), url=_plain(source))


def _plain(text: str) -> str:
    return make_printable_line(text)[:_LONGEST]
