# SPDX-License-Identifier: Apache-2.0
"""The newcomer's journey, with real processes from the first command to the last."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
LIMIT = 100


class Quickstart:
    """A quickstart that runs in the background, with what it prints."""

    def __init__(self, data_dir: Path, log: Path) -> None:
        self.data_dir = data_dir
        self._log = log
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                [BIN / "pipecd", "quickstart", "--data-dir", str(data_dir)],
                stdout=sink,
                stderr=sink,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        limit = time.monotonic() + LIMIT
        while text not in self.printed:
            assert self._process.poll() is None, f"it ended early:\n{self.printed}"
            assert time.monotonic() < limit, f"never said {text!r}:\n{self.printed}"
            time.sleep(0.05)  # between looks at another process's output

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        return self._process.wait(timeout=LIMIT)

    def pipectl(self, *arguments: str) -> dict[str, object]:
        done = subprocess.run(
            [self.data_dir / "pipectl", *arguments, "--output", "json"],
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=LIMIT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "quickstart"


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[object]:
    started: list[Quickstart] = []

    def begin() -> Quickstart:
        quickstart = Quickstart(folder, tmp_path / f"printed-{len(started)}")
        started.append(quickstart)
        return quickstart

    yield begin
    for quickstart in started:
        quickstart.kill()


@pytest.mark.timeout(300)
def test_the_check_walks_the_whole_journey() -> None:
    """Deploy, approve, commit, break, rollback, cancel: each row read back from outside."""
    done = subprocess.run(
        [BIN / "pipecd", "quickstart", "--check"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout


@pytest.mark.timeout(300)
def test_ctrl_c_and_a_second_start_find_everything_as_it_was(start) -> None:  # type: ignore[no-untyped-def]  # a factory fixture
    first: Quickstart = start()
    first.wait_for("What to try next")
    before = first.pipectl("deployment", "list")

    first.interrupt()

    assert first.ended() == 0, first.printed
    second: Quickstart = start()
    second.wait_for("What to try next")
    after = second.pipectl("deployment", "list")
    assert _ids(after) == _ids(before)
    [waiting] = [d for d in after["deployments"] if d.get("status", 0) == 2]  # type: ignore[attr-defined]
    done = subprocess.run(
        [
            second.data_dir / "pipectl",
            "deployment",
            "approve",
            "--deployment-id",
            waiting["id"],
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    second.wait_for("hello: SUCCESS")


def test_a_foreign_folder_is_refused_with_a_sentence(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")

    for arguments in ([], ["--clean"]):
        done = subprocess.run(
            [BIN / "pipecd", "quickstart", "--data-dir", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

        assert done.returncode != 0
        assert "not" in done.stderr
        assert "Traceback" not in done.stderr
    assert (folder / "thesis.txt").read_text() == "mine"


def _ids(answer: dict[str, object]) -> list[str]:
    return sorted(d["id"] for d in answer["deployments"])  # type: ignore[attr-defined]
