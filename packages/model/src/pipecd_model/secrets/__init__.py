# SPDX-License-Identifier: Apache-2.0
"""Secrets: closed for git, opened by piped, put where they are named, masked wherever they show.

`cipher` closes and opens, `files` and `placeholder` put opened ones into files and stages, `mask`
takes them out of logs again. Nothing here reads or writes a file. Names are looked up when they
are first used: a plugin that only masks does not pay for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipecd_model.secrets.cipher import BadKeyError, CannotOpenError, KeyPair, Opener, Sealer
    from pipecd_model.secrets.files import Prepared, prepare
    from pipecd_model.secrets.mask import Masker
    from pipecd_model.secrets.placeholder import BadPlaceholderError, open_command, open_variable
    from pipecd_model.secrets.sealing import seal

__all__ = [
    "BadKeyError",
    "BadPlaceholderError",
    "CannotOpenError",
    "KeyPair",
    "Masker",
    "Opener",
    "Prepared",
    "Sealer",
    "open_command",
    "open_variable",
    "prepare",
    "seal",
]

_HOME = {
    "BadKeyError": "cipher",
    "BadPlaceholderError": "placeholder",
    "CannotOpenError": "cipher",
    "KeyPair": "cipher",
    "Masker": "mask",
    "Opener": "cipher",
    "Prepared": "files",
    "Sealer": "cipher",
    "open_command": "placeholder",
    "open_variable": "placeholder",
    "prepare": "files",
    "seal": "sealing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
