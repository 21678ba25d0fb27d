# SPDX-License-Identifier: Apache-2.0
"""Write what follows from the folders under `plugins/`, each of which is a plugin.

* `schemas.json` in each package: how the plugin describes itself; its class is the source.
* `known_plugins.json` of the model: all descriptions together. Plugins that are not written yet
  have one by hand in `tools/future_plugins/`, until their folder comes.
* The lists of plugins in `pyproject.toml`, which know no wildcards.

`--check` writes nothing and names the files that are stale.
"""

import argparse
import json
import re
import sys
from importlib import import_module
from pathlib import Path

from pipecd_model.known_plugins import FILE, parse_description
from pipecd_sdk import StagePlugin
from pipecd_sdk.schemas import text_of

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "pipecd_plugin_"


def plugin_folders(root: Path) -> dict[str, Path]:
    """Return the import package of each plugin, by the plugin's name."""
    found = sorted((root / "plugins").glob(f"*/src/{PREFIX}*/__init__.py"))
    return {file.parent.name.removeprefix(PREFIX): file.parent for file in found}


def describe(folder: Path) -> str:
    """Return the description of the plugin in an import package."""
    has_module = (folder / "plugin.py").is_file()
    module = import_module(f"{folder.name}.plugin" if has_module else folder.name)
    (name,) = [
        name
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, StagePlugin)
        and each.__module__.startswith(folder.name)
    ]
    return text_of(f"{module.__name__}:{name}")


def files(root: Path) -> dict[Path, str]:
    """Return what each generated file must hold."""
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
    wanted[model] = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
    project = root / "pyproject.toml"
    return {**wanted, project: list_plugins(project.read_text("utf-8"), root, folders)}


def list_plugins(text: str, root: Path, folders: dict[str, Path]) -> str:
    """Replace the lists of plugins in `pyproject.toml` by those of the folders."""
    packages = [folder.name for folder in folders.values()]
    sources = [folder.parent.relative_to(root).as_posix() for folder in folders.values()]
    for pattern, items in (
        (r'(?m)(?:^  "pipecd_plugin_\w+",\n)+', [f'  "{each}",\n' for each in packages]),
        (
            r'(?m)(?:^  "\$MYPY_CONFIG_FILE_DIR/plugins/[^"]+",\n)+',
            [f'  "$MYPY_CONFIG_FILE_DIR/{each}",\n' for each in sources],
        ),
        (r"(?: \| pipecd_plugin_\w+)+", [f" | {each}" for each in packages]),
    ):
        text = re.sub(pattern, "".join(items), text)
    return text


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
    print(f"{len(stale)} files that follow from the plugins changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
