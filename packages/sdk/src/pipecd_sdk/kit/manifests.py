# SPDX-License-Identifier: Apache-2.0
"""Files of a commit that describe what is deployed: found, read and judged in one way.

Example:
    found = read_manifest_file(ctx.source.target, "web.yaml", what="the manifest", option="file")
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_sdk import InvalidFileError, Source, StageFailedError
from pipecd_sdk.repository import Folder, read_text

__all__ = ["ManifestFile", "find_field", "read_manifest_file"]

LARGEST_MANIFEST: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """What stands in a file of a commit.

    Example:
        kind = found.value.get("kind")
    """

    value: dict[str, Any]
    holds_secrets: bool
    """piped has put opened secrets into the file: its values are shown to nobody."""


def read_manifest_file(source: Source, name: str, *, what: str, option: str) -> ManifestFile:
    """Returns the one document of a YAML or JSON file, an object. Raises InvalidFileError.

    The name counts from the application's folder; no `..` and no link leads out of the repository.
    `option` is what names the file in the application file. It blocks: call it in a thread.

    Example:
        read_manifest_file(ctx.source.target, "web.yaml", what="the manifest", option="file").value
    """
    # Here and not above: a plugin that only waits for work needs no parser in memory.
    from pipecd_sdk.kit import yaml  # noqa: PLC0415
    from pipecd_sdk.kit.opened_files import list_opened_files  # noqa: PLC0415

    try:
        folder = Folder.open(source)
        path = folder.resolve(name, what)
        text = read_text(path, f"{what} {name!r}", largest=LARGEST_MANIFEST)
    except StageFailedError as error:
        raise InvalidFileError(str(error), hint=error.hint or f"{option} names it") from None
    try:
        documents = yaml.load_all(text)
    except yaml.YamlError as error:
        raise InvalidFileError(f"{name}: {error}") from None
    if len(documents) != 1:
        raise InvalidFileError(
            f"{name}: {what} must be one document, and there are {len(documents)}",
            hint="an application deploys one",
        )
    if not isinstance(documents[0], dict):
        raise InvalidFileError(f"{name}: {what} must be an object")
    opened = {os.path.realpath(folder.path / each) for each in list_opened_files(source)}
    return ManifestFile(value=documents[0], holds_secrets=str(path) in opened)


def find_field(value: Mapping[str, Any], name: str) -> Any:
    """Returns a field whose name may be written in any case, None without it.

    Example:
        >>> find_field({"ServiceName": "web"}, "serviceName")
        'web'
    """
    if name in value:
        return value[name]
    return next((item for key, item in value.items() if str(key).lower() == name.lower()), None)
