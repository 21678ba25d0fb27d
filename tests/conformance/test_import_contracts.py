# SPDX-License-Identifier: Apache-2.0
"""The import contracts hold, and a wrong import really breaks the build."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources and of the contracts, free to be spoilt."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for source in (*ROOT.glob("packages/*/src"), *ROOT.glob("plugins/*/src")):
        target = tmp_path / source.relative_to(ROOT)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    sources = [str(path) for path in (*tree.glob("packages/*/src"), *tree.glob("plugins/*/src"))]
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sources)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def add_import(tree: Path, module: str, line: str) -> None:
    file = tree / module
    file.write_text(file.read_text() + f"\n{line}\n")


def test_the_contracts_hold(tree: Path) -> None:
    checked = lint_imports(tree)

    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        pytest.param(
            "packages/model/src/pipecd_model/errors.py",
            "import pipecd_sdk",
            "Packages import downwards only",
            id="upward",
        ),
        pytest.param(
            "plugins/wait/src/pipecd_plugin_wait/plugin.py",
            "import pipecd_wire.rpc",
            "A plugin knows the SDK and nothing else of ours",
            id="a plugin that reaches past the SDK",
        ),
        pytest.param(
            "packages/pipectl/src/pipecd_pipectl/output.py",
            "import pipecd_pipectl.commands.piped",
            "No cycles between siblings",
            id="circular",
        ),
        pytest.param(
            "packages/pipectl/src/pipecd_pipectl/client.py",
            "import grpc",
            "Only pipecd_wire knows grpc.aio",
            id="grpc outside the wire package",
        ),
    ],
)
def test_a_wrong_import_breaks_the_build(tree: Path, module: str, line: str, broken: str) -> None:
    add_import(tree, module, line)

    checked = lint_imports(tree)

    assert checked.returncode != 0
    assert f"{broken} BROKEN" in checked.stdout
