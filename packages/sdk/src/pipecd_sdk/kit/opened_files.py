# SPDX-License-Identifier: Apache-2.0
"""Files of an application that piped puts opened secrets into: what is in them is shown to nobody.

Example:
    if options.task_definition_file in list_opened_files(ctx.source.target): ...
"""

import os
from typing import Any

from pipecd_sdk.context import Source

__all__ = ["list_opened_files"]


def list_opened_files(source: Source) -> set[str]:
    """Returns the files that the application file names under `encryption.decryptionTargets`.

    Example:
        >>> file = b"spec: {encryption: {decryptionTargets: [./web.yaml]}}"
        >>> list_opened_files(Source(config=file))
        {'web.yaml'}
    """
    # Here and not above: a plugin that only waits for work needs no parser in memory.
    from pipecd_sdk.kit import yaml  # noqa: PLC0415

    value: Any = yaml.load(source.config.decode(errors="replace")) if source.config else {}
    for key in ("spec", "encryption", "decryptionTargets"):
        value = value.get(key) if isinstance(value, dict) else None
    return {os.path.normpath(str(each)) for each in value} if isinstance(value, list) else set()
