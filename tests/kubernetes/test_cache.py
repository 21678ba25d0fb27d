# SPDX-License-Identifier: Apache-2.0
"""What is made once for all runs is there whole, or its absence has a reason."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipecd_test_support.kubernetes.cache import MissingError, cache_folder, find_entry, make_entry

MADE = "made.txt"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def fill(folder: Path) -> None:
    (folder / MADE).write_text("whole")
    with (cache_folder().parent / "calls").open("a") as calls:
        calls.write("x")


def be_silent(_sentence: str) -> None:
    pass


def test_what_was_made_is_found_again() -> None:
    """A second run makes nothing."""
    for _ in range(2):
        assert (make_entry("thing-1", fill, say=be_silent) / MADE).read_text() == "whole"
    assert (find_entry("thing-1") / MADE).exists()
    assert (cache_folder().parent / "calls").read_text() == "x"


def test_two_runs_at_once_make_it_once() -> None:
    """The second waits for the first."""
    folder = Path(__file__).parent
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from test_cache import fill, be_silent, make_entry\n"
        "make_entry('thing-1', fill, say=be_silent)\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [run.wait(60) for run in runs] == [0, 0, 0]
    assert (cache_folder().parent / "calls").read_text() == "x"


def test_what_failed_leaves_its_reason_and_nothing_else() -> None:
    """The reason is what skipped tests say; the next run tries again."""

    def fail(folder: Path) -> None:
        (folder / MADE).write_text("ha")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        make_entry("thing-1", fail, say=be_silent)
    with pytest.raises(MissingError, match="thing-1 is missing: the disk is full"):
        find_entry("thing-1")
    assert not [path for path in cache_folder().iterdir() if path.is_dir()]
    make_entry("thing-1", fill, say=be_silent)
    assert (find_entry("thing-1") / MADE).read_text() == "whole"


def test_tests_without_a_cluster_are_skipped_with_the_reason_in_the_last_lines() -> None:
    """A run where nothing could be built is no failure, and does not look like a success."""
    wanted = str(Path(__file__).with_name("test_cluster.py"))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "kubernetes", "-p", "no:xdist", wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    last = "\n".join(ran.stdout.splitlines()[-6:])
    assert "SKIPPED" in last
    assert "is missing: it was not made yet: run `make test-kubernetes`" in last
    assert "passed" not in last
