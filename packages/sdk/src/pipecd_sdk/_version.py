# SPDX-License-Identifier: Apache-2.0
"""The version of a plugin, from the metadata of the distribution that it was installed with."""

import sys
from pathlib import Path


class UnknownVersionError(TypeError):
    """No installed distribution has the name of the plugin's package."""


def find_version(package: str) -> str:
    """Returns the version of the distribution that is named as its import package.

    It is read from the name of the `.dist-info` folder: this runs at the start of every plugin,
    and `importlib.metadata` would take longer to import than the rest of the plugin. Raises
    UnknownVersionError.
    """
    suffix = ".dist-info"
    for folder in sys.path:
        for found in sorted(Path(folder).glob(f"{package}-*{suffix}")):
            return found.name.removesuffix(suffix).removeprefix(f"{package}-")
    raise UnknownVersionError(
        f"no distribution {package.replace('_', '-')!r} is installed; give the version to `serve`"
    )


def find_package(plugin: object) -> str:
    """Returns the import package of a plugin's class, also when its module is the program."""
    module = type(plugin).__module__
    if module == "__main__":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = spec.name if spec is not None else module
    return module.partition(".")[0]
