# SPDX-License-Identifier: Apache-2.0
"""Write what follows from the folders under `plugins/`, each of which has a plugin or several.

* `schemas.json` in each package: how the plugin describes itself; its class is the source. A
  package with several plugins has a `<name>.schemas.json` for each.
* `known_plugins.json` of the model: all descriptions together.
* The lists of plugins in `pyproject.toml`, which know no wildcards.
* Those of what is shipped: the distribution that brings all of them, and the image of piped. A
  plugin whose `pyproject.toml` says `shipped = false` under `[tool.pipecd]` is not.

`--check` writes nothing and names the files that are stale.
"""

import argparse
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pipecd_model.known_plugins import FILE
from pipecd_sdk import StagePlugin
from pipecd_sdk.schemas import text_of

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "pipecd_plugin_"
GROUP = "pipecd.plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPlugin:
    """One plugin of a folder."""

    name: str
    module: str
    """The module of its function `main`, which has its class."""
    file: Path
    """Where its description goes."""


def list_folders(root: Path) -> list[Path]:
    """Return the import packages of all plugins."""
    return sorted(file.parent for file in (root / "plugins").glob(f"*/src/{PREFIX}*/__init__.py"))


def read_project(folder: Path) -> dict[str, Any]:
    """Return the `pyproject.toml` of an import package."""
    return tomllib.loads((folder.parents[1] / "pyproject.toml").read_text("utf-8"))


def list_plugins(folder: Path) -> list[DescribedPlugin]:
    """Return the plugins of an import package, as its distribution names them."""
    project = read_project(folder)["project"]
    entries: dict[str, str] = project["entry-points"][GROUP]
    return [
        DescribedPlugin(
            name=name,
            module=entry.partition(":")[0],
            file=folder / ("schemas.json" if len(entries) == 1 else f"{name}.schemas.json"),
        )
        for name, entry in entries.items()
    ]


def describe(plugin: DescribedPlugin) -> str:
    """Return the description of a plugin."""
    package = plugin.module.partition(".")[0]
    module = import_module(plugin.module)
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, StagePlugin)
        and each.__module__.startswith(package)
    ]
    # A base class that several plugins share is not the plugin.
    (own,) = [
        each
        for each in found
        if not any(issubclass(other, each) for other in found if other is not each)
    ]
    return text_of(f"{module.__name__}:{own.__name__}")


def files(root: Path) -> dict[Path, str]:
    """Return what each generated file must hold."""
    folders = list_folders(root)
    plugins = [plugin for folder in folders for plugin in list_plugins(folder)]
    texts = {plugin.name: describe(plugin) for plugin in plugins}
    wanted = {plugin.file: texts[plugin.name] for plugin in plugins}
    known = {name: json.loads(texts[name]) for name in sorted(texts)}
    model = root / "packages/model/src/pipecd_model" / FILE
    wanted[model] = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
    project = root / "pyproject.toml"
    whole = root / "packages/pipecd/pyproject.toml"
    image = root / "deploy/piped.Containerfile"
    shipped = list_shipped(folders)
    return {
        **wanted,
        project: name_packages(project.read_text("utf-8"), root, folders),
        whole: name_requirements(whole.read_text("utf-8"), shipped),
        image: name_installed(image.read_text("utf-8"), shipped),
    }


def list_shipped(folders: Sequence[Path]) -> list[str]:
    """Return the distributions of the plugins that everybody gets."""
    projects = [read_project(folder) for folder in folders]
    return sorted(
        each["project"]["name"]
        for each in projects
        if each.get("tool", {}).get("pipecd", {}).get("shipped", True)
    )


def name_requirements(text: str, shipped: Sequence[str]) -> str:
    """Replace the plugins that a distribution needs; all have its version."""
    version = tomllib.loads(text)["project"]["version"]
    lines = "".join(f'  "{name}=={version}",\n' for name in shipped)
    return re.sub(r'(?m)(?:^  "pipecd-plugin-[a-z-]+==[^"]+",\n)+', lines, text)


def name_installed(text: str, shipped: Sequence[str]) -> str:
    """Replace the plugins that are installed into an image, beside piped."""
    lines = textwrap.wrap(" ".join(["pipecd-piped", *shipped]), width=84, break_on_hyphens=False)
    wanted = " \\\n    ".join(lines)
    return re.sub(r"pipecd-piped(?:(?: | \\\n    )pipecd-plugin-[a-z-]+)+", lambda _: wanted, text)


def name_packages(text: str, root: Path, folders: Sequence[Path]) -> str:
    """Replace the lists of plugins in `pyproject.toml` by those of the folders."""
    packages = [folder.name for folder in folders]
    sources = [folder.parent.relative_to(root).as_posix() for folder in folders]
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
