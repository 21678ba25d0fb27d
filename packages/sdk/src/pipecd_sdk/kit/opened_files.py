# SPDX-License-Identifier: Apache-2.0
"""Files of an application that piped puts opened secrets into: what is in them is shown to nobody.

Example:
    if options.task_definition_file in list_opened_files(ctx.source.target): ...
"""

import os
from collections.abc import Iterator
from typing import Any

from pipecd_sdk.context import Source

__all__ = ["has_secrets", "list_opened_files"]


def list_opened_files(source: Source) -> set[str]:
    """Returns the files that may hold opened secrets, by the application file, in any case of keys.

    Those under `encryption.decryptionTargets`; where there are secrets, also those under
    `attachment.targets`: they may name secrets themselves, and the files that are put into them,
    too.

    Example:
        >>> file = b"spec: {encryption: {decryptionTargets: [./web.yaml]}}"
        >>> list_opened_files(Source(config=file))
        {'web.yaml'}
    """
    spec = _read_spec(source)
    named = list(_iter_names(spec, "encryption", "decryptionTargets"))
    if named or _names_secrets(spec):
        named += _iter_names(spec, "attachment", "targets")
    return {os.path.normpath(each) for each in named}


def has_secrets(source: Source) -> bool:
    """Returns whether an application has secrets, which its files or its stages may name.

    Example:
        >>> has_secrets(Source(config=b"spec: {encryption: {encryptedSecrets: {key: CLOSED}}}"))
        True
    """
    return _names_secrets(_read_spec(source))


def _read_spec(source: Source) -> list[Any]:
    # Here and not above: a plugin that only waits for work needs no parser in memory.
    from pipecd_sdk.kit import yaml  # noqa: PLC0415

    file: Any = yaml.load(source.config.decode(errors="replace")) if source.config else {}
    return _find_all([file], "spec")


def _names_secrets(spec: list[Any]) -> bool:
    # Directly under `spec` is where the script-run document has them.
    inner = _find_all(spec, "encryption")
    return any(_find_all([*spec, *inner], "encryptedSecrets"))


def _iter_names(spec: list[Any], section: str, key: str) -> Iterator[str]:
    for value in _find_all(_find_all(spec, section), key):
        yield from (str(each) for each in value) if isinstance(value, list) else ()


def _find_all(values: list[Any], key: str) -> list[Any]:
    """Returns what a key holds in each of the mappings, however it is spelled: as piped reads it.

    Where two spellings stand side by side, both count.
    """
    return [
        item
        for value in values
        if isinstance(value, dict)
        for name, item in value.items()
        if str(name).lower() == key.lower()
    ]
