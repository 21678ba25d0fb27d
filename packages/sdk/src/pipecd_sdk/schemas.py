# SPDX-License-Identifier: Apache-2.0
"""`python -m pipecd_sdk.schemas package.module:Class`: print the schemas of a plugin.

Put what it prints into the package as `schemas.json`, and `pipectl lint` checks what people write
for the plugin wherever the package is installed.
"""

import sys
from importlib import import_module

from pipecd_sdk._schema import schemas_of
from pipecd_sdk.plugin import StagePlugin


def text_of(name: str) -> str:
    """The schemas of the plugin class that `package.module:Class` names."""
    module, _, attribute = name.partition(":")
    found = getattr(import_module(module), attribute)
    if not (isinstance(found, type) and issubclass(found, StagePlugin)):
        raise TypeError(f"{name!r} is not a plugin class")
    return schemas_of(found()).text()


if __name__ == "__main__":
    sys.stdout.write(text_of(sys.argv[1]))
