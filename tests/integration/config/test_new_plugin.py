# SPDX-License-Identifier: Apache-2.0
"""To add a plugin is to add one folder: everything else is written by `make docs`, or finds it."""

import os
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipecd_pipectl.cli import cli

ROOT = Path(__file__).parents[3]
PARTS = (
    "plugins",
    "tools",
    "docs/reference",
    "packages/model/src",
    "packages/pipecd/pyproject.toml",
    "deploy/piped.Containerfile",
    "tests/support/pyproject.toml",
    "requirements.lock",
    "requirements-dev.lock",
    "pyproject.toml",
    "Makefile",
)
HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  name: x\n"
STAGES = "  pipeline:\n    stages: [{name: %s, with: {duration: %s}}]\n"


class Tree:
    """A copy of what a plugin could touch, with one plugin more."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in PARTS:
            target = root / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, target)
        arguments = ["plugin", "init", "sample", "--folder", str(root / "plugins/sample")]
        assert CliRunner().invoke(cli, arguments).exit_code == 0

    def run(self, *command: str | Path) -> str:
        """Run a program that finds the packages of this tree, and return what it printed."""
        sources = [self.root / "packages/model/src", self.root / "plugins/sample/src"]
        environment = {
            **{key: value for key, value in os.environ.items() if "MAKE" not in key},
            "PYTHONPATH": os.pathsep.join(map(str, sources)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return done.stdout + done.stderr

    def texts(self) -> dict[str, str]:
        """Every file by its path."""
        return {
            str(file.relative_to(self.root)): file.read_text("utf-8")
            for file in self.root.rglob("*")
            if file.is_file()
        }

    def pipectl(self, command: str, text: str) -> str:
        file = self.root / "app.pipecd.yaml"
        file.write_text(text)
        return self.run(Path(sys.executable).with_name("pipectl"), command, file)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def changed(tree: Tree) -> set[str]:
    """The files that the generators write for the plugin."""
    before = tree.texts()
    for tool in ("gen_schemas.py", "gen_docs.py"):
        tree.run(sys.executable, tree.root / "tools" / tool)
    return {path for path, text in tree.texts().items() if before.get(path) != text}


def test_the_generators_write_all_that_follows_from_a_plugin(changed: set[str]) -> None:
    assert changed == {
        "plugins/sample/src/pipecd_plugin_sample/schemas.json",
        "packages/model/src/pipecd_model/known_plugins.json",
        "pyproject.toml",
        "docs/reference/stage-options.md",
        "packages/pipecd/pyproject.toml",
        "deploy/piped.Containerfile",
    }


@pytest.mark.usefixtures("changed")
def test_a_new_plugin_is_shipped_with_the_others(tree: Tree) -> None:
    project = tomllib.loads((tree.root / "packages/pipecd/pyproject.toml").read_text())["project"]
    assert f"pipecd-plugin-sample=={project['version']}" in project["dependencies"]
    installed = (tree.root / "deploy/piped.Containerfile").read_text().split()
    assert {"pipecd-plugin-sample", "pipecd-plugin-wait"} <= set(installed)
    assert "pipecd-plugin-dummy" not in installed


@pytest.mark.usefixtures("changed")
def test_lint_knows_a_new_plugin_that_is_not_installed(tree: Tree) -> None:
    said = tree.pipectl("lint", HEAD + STAGES % ("SAMPLE", "5m"))
    assert "1 file, 0 errors, 1 warning" in said
    assert "of the plugin 'sample', which is not installed here" in said
    told = tree.pipectl("lint", HEAD + STAGES % ("SAMPLE", "5x"))
    assert "6:46: spec.pipeline.stages[0].with.duration: not a duration: '5x'" in told


@pytest.mark.usefixtures("changed")
def test_simulate_knows_a_new_plugin_that_is_not_installed(tree: Tree) -> None:
    known = tree.pipectl("simulate", HEAD + STAGES % ("SAMPLE", "5m"))
    unknown = tree.pipectl("simulate", HEAD + STAGES % ("OTHER", "5m"))

    assert known == "1. SAMPLE succeeds\n"
    assert "no well-known plugin offers it" in unknown


@pytest.mark.usefixtures("changed")
def test_the_reference_has_the_stages_of_a_new_plugin(tree: Tree) -> None:
    page = (tree.root / "docs/reference/stage-options.md").read_text()
    assert "## sample\n\n### `SAMPLE`\n" in page


@pytest.mark.usefixtures("changed")
def test_the_import_contracts_and_the_type_checker_know_a_new_plugin(tree: Tree) -> None:
    tools = tomllib.loads((tree.root / "pyproject.toml").read_text())["tool"]
    downwards, plugins, *_, siblings = tools["importlinter"]["contracts"]

    assert "pipecd_plugin_sample" in tools["importlinter"]["root_packages"]
    assert "pipecd_plugin_sample" in downwards["layers"][0].split(" | ")
    assert "pipecd_plugin_sample" in plugins["source_modules"]
    assert "pipecd_plugin_sample" in siblings["ancestors"]
    assert "$MYPY_CONFIG_FILE_DIR/plugins/sample/src" in tools["mypy"]["mypy_path"]


def test_make_installs_and_checks_a_new_plugin(tree: Tree) -> None:
    listing = (
        "import install, pathlib; print(*install.own_folders(pathlib.Path(), developing=False))"
    )
    tools = f"import sys; sys.path.insert(0, 'tools'); {listing}"
    assert "plugins/sample" in tree.run(sys.executable, "-c", tools).split()
    assert "tools/install.py" in tree.run("make", "--dry-run", "setup")
    checked = tree.run("make", "--dry-run", "types")
    assert "plugins/sample/src" in checked
    assert any(fnmatch("plugins/sample/tests", each) for each in checked.split())
