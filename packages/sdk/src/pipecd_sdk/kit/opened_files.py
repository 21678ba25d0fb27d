# SPDX-License-Identifier: Apache-2.0
"""Which files of a commit hold opened secrets: a plugin shows no values of them."""

import os
from typing import Any

from pipecd_sdk.context import Source
from pipecd_sdk.kit import yaml

__all__ = ["list_opened_files"]


def list_opened_files(source: Source) -> set[str]:
    """Returns the files of the application that piped puts opened secrets into.

    Example:
        >>> file = b"spec: {encryption: {decryptionTargets: [./web.yaml]}}"
        >>> list_opened_files(Source(config=file))
        {'web.yaml'}
    """
    value: Any = yaml.load(source.config.decode(errors="replace")) if source.config else {}
    for key in ("spec", "encryption", "decryptionTargets"):
        value = value.get(key) if isinstance(value, dict) else None
    return {os.path.normpath(str(each)) for each in value} if isinstance(value, list) else set()
