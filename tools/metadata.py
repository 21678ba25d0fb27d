# SPDX-License-Identifier: Apache-2.0
"""Write into every pyproject.toml what all distributions share: one version, one licence.

    python tools/metadata.py          write it anew
    python tools/metadata.py --check  fail when a file differs, and say which

The one place is `[tool.pipecd.release]` in the pyproject.toml of the root. Written are a block of
keys, and the versions of our own distributions where one needs another: they are released together
and fit together, so each is pinned. Each folder also has a link to the licence, because a
distribution is built from its folder alone.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
BEGIN: Final = "# The same in all distributions: written by `make metadata` from the root's file.\n"
END: Final = "# Until here.\n"
BLOCK: Final = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
OURS: Final = re.compile(r'"(pipecd(?:-[a-z]+)*)(\[[a-z,-]+\])?(?:==[^";]*)?"')
"""A requirement of one of our own distributions, as it is written in a list."""


class MetadataError(Exception):
    """A pyproject.toml cannot be written; says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail when a file differs")
    check = parser.parse_args().check
    try:
        stale = sorted(write_all(ROOT, check=check))
    except MetadataError as error:
        print(error, file=sys.stderr)
        return 1
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
    if check and stale:
        print("run `make metadata`", file=sys.stderr)
    return 1 if check and stale else 0


def list_projects(root: Path) -> list[Path]:
    """Returns the folders of the distributions that are published."""
    files = [*root.glob("packages/*/pyproject.toml"), *root.glob("plugins/*/pyproject.toml")]
    return sorted(file.parent for file in files)


def write_all(root: Path, *, check: bool) -> list[Path]:
    """Writes, or only compares, all files; returns those that differed. Raises MetadataError."""
    release = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pipecd"]["release"]
    folders = list_projects(root)
    names = {_name_of(folder) for folder in folders}
    stale = []
    for folder in folders:
        file = folder / "pyproject.toml"
        wanted = fill(file, release, names)
        if wanted != file.read_text():
            stale.append(file)
            if not check:
                file.write_text(wanted)
        licence = folder / "LICENSE"
        if not (licence.is_symlink() and licence.resolve() == root / "LICENSE"):
            stale.append(licence)
            if not check:
                licence.unlink(missing_ok=True)
                licence.symlink_to("../../LICENSE")
    return stale


def fill(file: Path, release: dict[str, Any], names: set[str]) -> str:
    """Returns a pyproject.toml with shared keys and pinned siblings. Raises MetadataError."""
    text = file.read_text()
    block = f"{BEGIN}{_format_keys(release)}{END}"
    if BLOCK.search(text) is None:
        raise MetadataError(f"{file}: no block that begins with {BEGIN.strip()!r}")

    def pin(found: re.Match[str]) -> str:
        if found[1] not in names:
            return found[0]
        return f'"{found[1]}{found[2] or ""}=={release["version"]}"'

    head, brackets, rest = text.partition("dependencies = [")
    return BLOCK.sub(lambda _: block, head) + brackets + OURS.sub(pin, rest)


def _format_keys(release: dict[str, Any]) -> str:
    lines = [
        f'version = "{release["version"]}"',
        'readme = "README.md"',
        'license = "Apache-2.0"',
        'license-files = ["LICENSE"]',
        f'requires-python = ">={release["pythons"][0]}"',
        f'authors = [{{ name = "{release["author"]}" }}]',
        _format_list("keywords", release["keywords"]),
        _format_list("classifiers", [*release["classifiers"], *_name_pythons(release["pythons"])]),
        "urls = { "
        + ", ".join(f'{name} = "{url}"' for name, url in release["urls"].items())
        + " }",
    ]
    return "\n".join(lines) + "\n"


def _format_list(key: str, values: Sequence[str]) -> str:
    return f"{key} = [\n" + "".join(f'  "{value}",\n' for value in values) + "]"


def _name_pythons(pythons: Sequence[str]) -> list[str]:
    return [f"Programming Language :: Python :: {each}" for each in ("3", "3 :: Only", *pythons)]


def _name_of(folder: Path) -> str:
    name: str = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
    return name


if __name__ == "__main__":
    sys.exit(main())
