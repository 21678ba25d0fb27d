# SPDX-License-Identifier: Apache-2.0
"""`tools/metadata.py`: the version and what distributions share stand in one place."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the tool reads and writes, at a place of their own."""
    for file in (*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")):
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True)
        shutil.copy(file, target)
        target.with_name("LICENSE").symlink_to("../../LICENSE")
    for name in ("LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "metadata.py", tmp_path / "tools")
    return tmp_path


@pytest.fixture
def tool(checkout: Path) -> Tool:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(checkout / "tools" / "metadata.py"), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    return run


def test_all_files_have_what_the_one_place_says(tool: Tool) -> None:
    done = tool("--check")

    assert (done.returncode, done.stdout) == (0, "")


def test_a_new_version_reaches_every_distribution_and_every_sibling(
    tool: Tool, checkout: Path
) -> None:
    file = checkout / "pyproject.toml"
    file.write_text(file.read_text().replace('version = "0.1.0"', 'version = "9.8.7"', 1))

    stale = tool("--check")
    written = tool()

    assert stale.returncode == 1
    assert "run `make metadata`" in stale.stderr
    assert written.returncode == 0
    for project in (*checkout.glob("packages/*/*.toml"), *checkout.glob("plugins/*/*.toml")):
        text = project.read_text()
        assert 'version = "9.8.7"' in text
        assert "0.1.0" not in text
    piped = (checkout / "packages/piped/pyproject.toml").read_text()
    assert '"pipecd-model[regex,secrets,windows]==9.8.7",' in piped
    assert tool("--check").returncode == 0


def test_a_sibling_without_a_version_is_found(tool: Tool, checkout: Path) -> None:
    file = checkout / "plugins/wait/pyproject.toml"
    file.write_text(file.read_text().replace("pipecd-sdk==0.1.0", "pipecd-sdk"))

    done = tool("--check")

    assert done.returncode == 1
    assert done.stdout == "stale: plugins/wait/pyproject.toml\n"


def test_a_folder_without_its_licence_is_found_and_gets_it(tool: Tool, checkout: Path) -> None:
    licence = checkout / "packages/sdk/LICENSE"
    licence.unlink()

    assert tool("--check").stdout == "stale: packages/sdk/LICENSE\n"
    tool()
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_a_file_without_the_block_is_told(tool: Tool, checkout: Path) -> None:
    file = checkout / "plugins/wait/pyproject.toml"
    file.write_text(file.read_text().replace("# The same in all", "# Not the same in all"))

    done = tool()

    assert done.returncode == 1
    assert "plugins/wait/pyproject.toml: no block that begins with" in done.stderr
