# SPDX-License-Identifier: Apache-2.0
"""`pipectl plugin init` and `build`: wrong calls, and what the boot code does."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipecd_pipectl.cli import cli
from pipecd_pipectl.pluginfile import boot


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["plugin", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("name", ["Hello", "9lives", "a-b", "", "a" * 40])
def test_a_bad_name_is_refused(name: str, tmp_path: Path) -> None:
    code, output = run("init", name, "--folder", str(tmp_path / "new"))

    assert code == 2
    assert "not a name for a plugin" in output
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()

    code, output = run("init", "hello", "--folder", str(tmp_path))

    assert code == 2
    assert "is not empty" in output
    assert [each.name for each in tmp_path.iterdir()] == ["precious"]


def test_a_new_plugin_is_short(tmp_path: Path) -> None:
    code, _ = run("init", "hello", "--folder", str(tmp_path))

    assert code == 0
    source = (tmp_path / "src/pipecd_plugin_hello/__init__.py").read_text()
    test = (tmp_path / "tests/test_plugin.py").read_text()
    assert len(source.splitlines()) <= 25
    assert len(test.splitlines()) <= 15
    assert not any("__" in path.name.replace("__init__", "") for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (None, "cannot read"),
        ("[project", "pyproject.toml"),
        ("[project]\nname = 'x'\n", "must name one command, and names 0"),
        (
            "[project]\n[project.scripts]\nx = 'x:main'\ny = 'y:main'\n",
            "names 2: choose one with --command: x, y",
        ),
        (
            "[project]\ndependencies = ['no-such-thing']\n[project.scripts]\nx = 'x:main'\n",
            "'no-such-thing' is not installed here",
        ),
        (
            "[project]\ndependencies = ['click>=99']\n[project.scripts]\nx = 'x:main'\n",
            "click>=99 is needed",
        ),
    ],
)
def test_a_folder_that_cannot_be_built_is_explained(
    document: str | None, sentence: str, tmp_path: Path
) -> None:
    if document is not None:
        (tmp_path / "pyproject.toml").write_text(document)

    code, output = run("build", str(tmp_path), "--output", str(tmp_path / "out"))

    assert code == 1
    assert sentence in output
    assert not (tmp_path / "out").exists()


def test_another_python_says_what_is_missing(tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text(Path(boot.__file__).read_text() + '\nmain("3.1", "digest", "hello", "main")\n')

    done = subprocess.run(
        [sys.executable, main], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1
    assert done.stderr.startswith("this plugin needs python3.1 on the PATH; the one that runs it")
