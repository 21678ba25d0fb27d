# SPDX-License-Identifier: Apache-2.0
"""Which tests CI runs once more, and what it says of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RERUN = Path(__file__).parents[2] / "tools" / "rerun_failed.py"
BROKEN = "def test_it():\n    raise AssertionError\n"
UNSTEADY = """
from pathlib import Path
import pytest

@pytest.mark.xdist_group("alone")
@pytest.mark.parametrize("who", ["somebody@somewhere"])
def test_it(who):
    seen = Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError
"""

CONFTEST = """
from pipecd_test_support import run_outcome

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        run_outcome.note_begin(config)

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        run_outcome.note_end(session, {left})
"""

INI = """
[pytest]
markers =
    xdist_group
    slow
addopts = -m "not slow"
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=ours,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def run_suite(
    folder: Path, *files: str, left: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> None:
    """Runs a suite of these files, in which at least one test fails."""
    (folder / "conftest.py").write_text(CONFTEST.format(left=left))
    (folder / "pytest.ini").write_text(INI)
    for number, text in enumerate(files):
        (folder / f"test_{number}.py").write_text(text)
    assert run(folder, "-m", "pytest", "-n", "1", "--dist", "loadgroup", *options).returncode == 1


def test_one_that_passes_alone_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    run_suite(tmp_path, UNSTEADY)

    done = run(tmp_path, str(RERUN))

    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == "rerun: UNSTEADY, to be mended: test_0.py::test_it[somebody@somewhere]"


def test_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    run_suite(tmp_path, UNSTEADY, BROKEN)

    done = run(tmp_path, str(RERUN))

    assert done.returncode == 1
    assert "UNSTEADY" not in done.stdout


def test_those_that_are_only_run_by_an_option_are_run_again_by_it(tmp_path: Path) -> None:
    slow = f"import pytest\n\n@pytest.mark.slow\n{BROKEN}"
    run_suite(tmp_path, UNSTEADY, slow, options=("-m", "slow or not slow"))

    done = run(tmp_path, str(RERUN))

    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "UNSTEADY" not in done.stdout


@pytest.mark.parametrize("count", [0, 4])
def test_none_or_more_than_a_few_are_not_run_again(tmp_path: Path, count: int) -> None:
    if count:
        run_suite(tmp_path, *[UNSTEADY] * count)

    done = run(tmp_path, str(RERUN))

    assert done.returncode == 1
    assert "passed" not in done.stdout


def test_a_run_that_left_something_behind_has_failed_whatever_its_tests_did(
    tmp_path: Path,
) -> None:
    run_suite(tmp_path, UNSTEADY, left=("a process",))

    done = run(tmp_path, str(RERUN))

    assert done.returncode == 1
    assert "left something behind" in done.stdout
    assert "passed" not in done.stdout


def test_a_run_that_was_killed_has_failed_whatever_its_tests_did(tmp_path: Path) -> None:
    dies = "import os\n\ndef test_it():\n    os.kill(os.getppid(), 9)\n"
    (tmp_path / "conftest.py").write_text(CONFTEST.format(left=()))
    (tmp_path / "test_0.py").write_text(UNSTEADY)
    run(tmp_path, "-m", "pytest")
    (tmp_path / "test_1.py").write_text(dies)
    assert run(tmp_path, "-m", "pytest", "-n", "1").returncode < 0

    done = run(tmp_path, str(RERUN))

    assert done.returncode == 1
    assert "it ended with status 2" in done.stdout
