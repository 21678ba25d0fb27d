# SPDX-License-Identifier: Apache-2.0
"""The check at the end of every run of the tests: what they leave is named, and fails the run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"
CLEAN = """
import subprocess, tempfile

def test_it(tmp_path):
    with tempfile.TemporaryDirectory():
        subprocess.run(["true"], check=True)
"""
MESSY = """
import os, pathlib, subprocess, tempfile

def test_it(tmp_path):
    tempfile.mkdtemp(prefix="forgotten-")
    left = subprocess.Popen(["sleep", "301"], start_new_session=True)
    bare = subprocess.Popen(["sleep", "302"], cwd=tmp_path, env={}, start_new_session=True)
    pathlib.Path(os.environ["PIDS"]).write_text(f"{left.pid} {bare.pid}")
    left.returncode = bare.returncode = 0
"""


def run_tests(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a test in a tree of its own that has our conftest."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder],
        cwd=folder,
        env=ours | {"PIDS": str(folder / "pids")},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize("workers", ["0", "1"])
def test_processes_and_folders_that_are_left_fail_the_run_and_are_named(
    tmp_path: Path, workers: str
) -> None:
    done = run_tests(tmp_path, MESSY, "-n", workers)

    assert "1 passed" in done.stdout
    assert done.returncode == 1, done.stdout
    named = done.stdout.partition("The tests have left behind:")[2]
    assert "sleep 301, of test_it.py::test_it (call)" in named
    assert "sleep 302" in named, "one without any variable, found by where it works"
    assert "in the temporary folder: forgotten-" in named
    for pid in (tmp_path / "pids").read_text().split():
        assert not is_running(pid), "what is left is ended"


def test_a_run_that_leaves_nothing_passes(tmp_path: Path) -> None:
    done = run_tests(tmp_path, CLEAN)

    assert done.returncode == 0, done.stdout
    assert "left behind" not in done.stdout


def is_running(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}
