# SPDX-License-Identifier: Apache-2.0
"""Each of our plugins tells the version of its distribution, and marks its types as such."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_prints_the_version_of_its_distribution(folder: Path) -> None:
    declared = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    program = Path(sys.executable).parent / declared["name"]

    printed = subprocess.run(
        [program, "version"], capture_output=True, text=True, check=True, timeout=60
    )

    assert printed.stdout == f"{declared['version']}\n"


@pytest.mark.parametrize(
    "package",
    sorted(
        file.parent
        for pattern in ("packages/*/src/*/__init__.py", "plugins/*/src/*/__init__.py")
        for file in ROOT.glob(pattern)
    ),
    ids=lambda package: package.name,
)
def test_every_package_says_that_it_is_typed(package: Path) -> None:
    assert (package / "py.typed").is_file()
