# SPDX-License-Identifier: Apache-2.0
"""Public names of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def export_lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], object]]:
    """Returns `__all__` and `__getattr__` for the `__init__` of a package.

    `homes` maps a module, relative to the package when it begins with a dot, to its public names,
    separated by blanks. A type checker cannot read it: the `__init__` imports the same names once
    more under `TYPE_CHECKING`, as `Name as Name`. The returned `__getattr__` raises AttributeError
    for every other name.

    Example:
        __all__, __getattr__ = export_lazily(__name__, {".clock": "Clock", ".config": "Fault read"})
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def get_attribute(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home_of), get_attribute
