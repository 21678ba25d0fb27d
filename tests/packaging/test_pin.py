# SPDX-License-Identifier: Apache-2.0
"""`tools/pin.py`: the lock has the hashes of all files of a version, from pip's own index."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipecd_test_support.web_server import Answer, WebServer

TOOL = Path(__file__).parents[2] / "tools" / "pin.py"
PAGE = """<!DOCTYPE html><html><body>
<a href="../../a/good_thing-1.0.tar.gz#sha256={a}">good_thing-1.0.tar.gz</a>
<a href="../../a/good_thing-1.0-py3-none-any.whl#sha256={b}">good_thing-1.0-py3-none-any.whl</a>
<a href="../../a/good_thing-1.0-cp313-cp313-win_amd64.whl#sha256={c}">for others</a>
<a href="../../a/good_thing-1.0.1-py3-none-any.whl#sha256={d}">of another version</a>
<a href="../../a/good_thing-1.0.exe#sha256={d}">what pip does not install</a>
<a href="../../a/good_thing-1.0-py2-none-any.whl">without a hash</a>
</body></html>
"""
HASHES = {letter: letter * 64 for letter in "abcd"}

Pin = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def pin(tmp_path: Path) -> Iterator[Pin]:
    """Run the tool on the files of a folder, with an index that has one distribution."""
    with WebServer() as server:
        page = PAGE.format(**HASHES).encode()
        html = {"Content-Type": "text/html"}
        server.give("/simple/good-thing/", Answer(body=page, headers=html))
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{server.url}/simple"}
        files = [
            "--constraints",
            str(tmp_path / "constraints.txt"),
            "--lock",
            str(tmp_path / "lock"),
        ]

        def run(constraints: str, *options: str) -> subprocess.CompletedProcess[str]:
            (tmp_path / "constraints.txt").write_text(constraints)
            return subprocess.run(
                [sys.executable, TOOL, *files, *options],
                env=os.environ | pip,
                capture_output=True,
                text=True,
                check=False,
            )

        yield run


def test_all_files_of_the_version_count_whatever_they_are_for(pin: Pin, tmp_path: Path) -> None:
    done = pin("# comment\nGood_Thing==1.0\n")

    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "lock").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "Good_Thing==1.0 \\",
        f"    --hash=sha256:{HASHES['a']} \\",
        f"    --hash=sha256:{HASHES['b']} \\",
        f"    --hash=sha256:{HASHES['c']}",
    ]


def test_a_version_that_is_not_there_is_told(pin: Pin, tmp_path: Path) -> None:
    done = pin("Good_Thing==2.0\n")

    assert done.returncode == 1
    assert "the index has no files of Good_Thing 2.0" in done.stderr
    assert not (tmp_path / "lock").exists()


def test_a_line_that_is_no_pin_is_told(pin: Pin) -> None:
    done = pin("Good_Thing>=1.0\n")

    assert done.returncode == 1
    assert "not a pin: 'Good_Thing>=1.0'" in done.stderr


def test_a_lock_of_other_versions_is_found(pin: Pin) -> None:
    pin("Good_Thing==1.0\n")

    assert pin("Good_Thing==1.0\n", "--check").returncode == 0
    done = pin("Good_Thing==1.1\n", "--check")
    assert done.returncode == 1
    assert "does not fit" in done.stderr
