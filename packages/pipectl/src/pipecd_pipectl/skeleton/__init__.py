# SPDX-License-Identifier: Apache-2.0
"""The folder that `pipectl plugin init` makes: files beside this one, with names to fill in.

In names and contents, `__name__` is the plugin's name and `__STAGE__` its stage.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FILES: Final = Path(__file__).parent / "files"
NAME: Final = re.compile(r"[a-z][a-z0-9]{0,30}")


class BadNameError(ValueError):
    """The name is not valid for a plugin."""


def skeleton(name: str) -> Iterator[tuple[Path, str]]:
    """Yields the files of a new plugin: path in its folder, and content. Raises BadNameError."""
    if not NAME.fullmatch(name):
        raise BadNameError(f"not a name for a plugin: {name!r} (small letters and digits)")
    for file in sorted(FILES.rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            path = str(file.relative_to(FILES)).removesuffix(".in")
            yield Path(_fill(path, name)), _fill(file.read_text(), name)


def _fill(text: str, name: str) -> str:
    return text.replace("__name__", name).replace("__STAGE__", name.upper())
