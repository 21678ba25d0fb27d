# SPDX-License-Identifier: Apache-2.0
"""Write `schemas.json` into the package of every plugin; `--check` says which ones are stale."""

import sys
from importlib import import_module
from pathlib import Path

from pipecd_sdk import StagePlugin
from pipecd_sdk.schemas import text_of

ROOT = Path(__file__).resolve().parent.parent


def schemas() -> dict[Path, str]:
    """What each file must hold."""
    found = {}
    for folder in sorted((ROOT / "plugins").glob("*/src/pipecd_plugin_*")):
        module = import_module(f"{folder.name}.plugin")
        (name,) = [
            name
            for name, each in vars(module).items()
            if isinstance(each, type)
            and issubclass(each, StagePlugin)
            and each.__module__.startswith(folder.name)
        ]
        found[folder / "schemas.json"] = text_of(f"{module.__name__}:{name}")
    return found


def main() -> int:
    """Write the files, or check them."""
    stale = [
        file
        for file, text in schemas().items()
        if not file.is_file() or file.read_text("utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"stale, run `make docs`: {file.relative_to(ROOT)}", file=sys.stderr)
        return 1 if stale else 0
    for file in stale:
        file.write_text(schemas()[file], "utf-8")
    print(f"{len(stale)} files of schemas changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
