# SPDX-License-Identifier: Apache-2.0
"""Write how plugins describe themselves: `schemas.json` of each, and the list of the model.

Every folder under `plugins/` is a plugin; its class is the source. Plugins that are not written yet
have a description by hand in `tools/future_plugins/`, until their folder comes. All of them
together are `known_plugins.json` of the model. `--check` writes nothing and names the
files that are stale.
"""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from pipecd_model.known_plugins import FILE, parse_description
from pipecd_sdk import StagePlugin
from pipecd_sdk.schemas import text_of

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "pipecd_plugin_"


def plugin_folders(root: Path) -> dict[str, Path]:
    """The import package of each plugin, by the plugin's name."""
    found = sorted((root / "plugins").glob(f"*/src/{PREFIX}*/plugin.py"))
    return {file.parent.name.removeprefix(PREFIX): file.parent for file in found}


def describe(folder: Path) -> str:
    """The description of the plugin in an import package."""
    module = import_module(f"{folder.name}.plugin")
    (name,) = [
        name
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, StagePlugin)
        and each.__module__.startswith(folder.name)
    ]
    return text_of(f"{module.__name__}:{name}")


def files(root: Path) -> dict[Path, str]:
    """What each generated file must hold."""
    folders = plugin_folders(root)
    texts = {name: describe(folder) for name, folder in folders.items()}
    wanted = {folders[name] / "schemas.json": text for name, text in texts.items()}
    for file in sorted((root / "tools/future_plugins").glob("*.json")):
        if file.stem in texts:
            sys.exit(f"{file.relative_to(root)}: plugins/ has this plugin now; remove the file")
        texts[file.stem] = file.read_text("utf-8")
        parse_description(file.stem, texts[file.stem])
    known = {name: json.loads(texts[name]) for name in sorted(texts)}
    model = root / "packages/model/src/pipecd_model" / FILE
    return {**wanted, model: json.dumps(known, indent=1, ensure_ascii=False) + "\n"}


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to work on")
    given = parser.parse_args()
    stale = {
        file: text
        for file, text in files(given.root).items()
        if not file.is_file() or file.read_text("utf-8") != text
    }
    if given.check:
        for file in stale:
            print(f"stale, run `make docs`: {file.relative_to(given.root)}", file=sys.stderr)
        return 1 if stale else 0
    for file, text in stale.items():
        file.write_text(text, "utf-8")
    print(f"{len(stale)} descriptions of plugins changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
