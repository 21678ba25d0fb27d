# SPDX-License-Identifier: Apache-2.0
"""The newcomer's journey, with real processes from the first command to the last."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipecd_test_support.program_terminal import ProgramTerminal

BIN = Path(sys.executable).parent
LIMIT = 100
SUGGESTIONS = "What to try next"
LINK = r"http://127\.0\.0\.1:\d+/auth/link#[\w-]{43}"
APPROVE = "pipectl deployment approve hello"
FIND_PIPECTL = 'pipectl() { ../pipectl "$@"; }'
"""As the quickstart says it in a folder that cannot be in PATH."""
UNWRITABLE = """
import sys
from pipecd_controlplane.cli import main
from pipecd_test_support.bound_by_modes import obey_modes
obey_modes()
main()
"""


@contextmanager
def started(folder: Path) -> Iterator[ProgramTerminal]:
    """A quickstart in a terminal."""
    command: list[str | Path] = [BIN / "pipecd", "quickstart", "--data-dir", folder]
    with ProgramTerminal(command, cwd=folder.parent) as terminal:
        yield terminal


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "pipecd", "quickstart", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def type_there(folder: Path, command: str) -> str:
    """Type a command where the suggestions say."""
    return subprocess.run(
        ["sh", "-c", f"{FIND_PIPECTL}\n{command}"],
        cwd=folder / "repository",
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    ).stdout


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence that a refused command says."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, "a traceback is no sentence"
    assert len(done.stderr) < 400, "a short one"
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with a name that a shell and YAML would read otherwise."""
    return tmp_path / "it's: a quick #start"


@pytest.mark.timeout(300)
def test_the_check_types_every_suggestion_and_sees_what_it_says() -> None:
    """Deploy, approve, commit, break, rollback, cancel, drift: each row read back from outside."""
    done = subprocess.run(
        [BIN / "pipecd", "quickstart", "--check"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    assert done.stdout.count(f"$ {APPROVE}") == 4


@pytest.mark.timeout(300)
def test_ctrl_c_and_a_second_start_find_everything_as_it_was(folder: Path) -> None:
    with started(folder) as first:
        first.wait_for(SUGGESTIONS)
        before = deployments(folder)
        first.interrupt()
        assert first.ended() == 0, first.shown

    with started(folder) as second:
        second.wait_for(SUGGESTIONS)
        assert deployments(folder) == before
        type_there(folder, APPROVE)
        second.wait_for("hello: SUCCESS")
        second.interrupt()
        assert second.ended() == 0, second.shown

    with started(folder) as third:
        third.wait_for("1. Look at the deployment")  # nothing waits for approval any more
        third.interrupt()
        assert third.ended() == 0


@pytest.mark.timeout(300)
def test_it_prints_links_that_sign_a_browser_in_once_each(folder: Path) -> None:
    """On the terminal, by a key, by a command; and in no file of the quickstart's."""
    with started(folder) as terminal:
        terminal.wait_for("Another link: press l.")
        terminal.enter("l")
        terminal.wait_for("Another link: press l.", times=2)
        printed = run("--link", "--data-dir", folder)
        assert printed.returncode == 0, printed.stderr
        links = [*re.findall(LINK, terminal.shown), printed.stdout.strip()]
        assert len(set(links)) == 3
        for link in links:
            url, _, secret = link.partition("#")
            origin = url.removesuffix("/auth/link")
            with httpx2.Client(
                trust_env=False, timeout=LIMIT, headers={"origin": origin}
            ) as client:
                assert client.post(url, data={"secret": secret}).status_code == 303
                assert client.cookies["token"]
                assert client.post(url, data={"secret": secret}).status_code == 401
            for log in folder.glob("*.log"):
                assert secret not in log.read_text()
        terminal.interrupt()
        assert terminal.ended() == 0
    assert "is stopped" in sentence(run("--link", "--data-dir", folder))


@pytest.mark.timeout(300)
def test_a_running_one_shows_its_suggestions_again_and_is_left_alone(folder: Path) -> None:
    """By a key, by a command; a second start and --clean are refused in one short sentence."""
    with started(folder) as terminal:
        terminal.wait_for(SUGGESTIONS)
        terminal.enter("h")
        terminal.wait_for(SUGGESTIONS, times=2)
        shown = terminal.shown.rpartition(SUGGESTIONS)[2]

        again = run("--next", "--data-dir", folder)
        assert again.returncode == 0, again.stderr
        for line in commands(shown):
            assert line in again.stdout
        assert all(len(line) <= 80 for line in commands(shown) if not line.startswith("cd "))

        for arguments, beginning in (
            ([], "error: a quickstart runs already"),
            (["--clean"], "error: the quickstart runs"),
        ):
            said = sentence(run("--data-dir", folder, *arguments))
            assert said.startswith(f"{beginning} in {str(folder)!r} (stop it first: Ctrl-C")
            pid = int(said.rpartition("`kill ")[2].rstrip("`)\n"))
        assert deployments(folder), "it runs on"

        os.kill(pid, signal.SIGTERM)
        assert terminal.ended() == 0, "the way to stop it that was said"
    assert run("--data-dir", folder, "--clean").returncode == 0
    assert not folder.exists()


@pytest.mark.timeout(300)
def test_a_second_push_says_what_it_waits_for(folder: Path) -> None:
    with started(folder) as terminal:
        terminal.wait_for(SUGGESTIONS)
        first = type_there(folder, "git rev-parse --short=7 HEAD").strip()
        type_there(folder, "date >> hello/message.txt && git commit -qam change")
        second = type_there(folder, "git rev-parse --short=7 HEAD").strip()

        terminal.wait_for(f"hello: {second} waits behind {first}, which waits for approval")
        assert f"hello: {first} waits for approval: {APPROVE}" in terminal.shown

        type_there(folder, APPROVE)
        terminal.wait_for(f"hello: {second} waits for approval: {APPROVE}")


@pytest.mark.timeout(200)
def test_a_port_that_is_taken_meanwhile_is_said_and_another_used(folder: Path) -> None:
    with started(folder) as first:
        first.wait_for(SUGGESTIONS)
    state = folder / "quickstart.json"
    port = json.loads(state.read_text())["port"]

    with socket.create_server(("127.0.0.1", port)), started(folder) as second:
        second.wait_for(f"another program listens on port {port} now: taking ")
        second.wait_for(SUGGESTIONS)


def test_a_foreign_folder_is_refused_with_a_sentence(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")

    for arguments in ([], ["--clean"], ["--check"]):
        assert "not a quickstart folder" in sentence(run("--data-dir", folder, *arguments))
    assert sorted(folder.iterdir()) == [folder / "thesis.txt"]


def test_a_folder_that_cannot_be_made_or_written_is_refused_with_a_sentence(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "closed").mkdir(mode=0o500)

    under_a_file = run("--data-dir", tmp_path / "file" / "quickstart")
    unwritable = subprocess.run(
        [sys.executable, "-c", UNWRITABLE, "quickstart", "--data-dir", tmp_path / "closed"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert "Not a directory" in sentence(under_a_file)
    assert "Permission denied" in sentence(unwritable)
    assert "choose another with --data-dir" in unwritable.stderr


def test_a_quickstart_that_is_not_there_or_stopped_has_no_suggestions(folder: Path) -> None:
    assert run("--next", "--data-dir", folder).returncode == 4
    folder.mkdir()
    (folder / "quickstart.json").write_text("{}")

    assert "is stopped (start it with `" in sentence(run("--next", "--data-dir", folder))
    (folder / "quickstart.json").write_text("{")
    assert "is damaged (remove everything with --clean)" in sentence(run("--data-dir", folder))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 40 MB; the test is left out where none can be made."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("only root can make a disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.timeout(200)
def test_a_full_disk_is_said_and_everything_stops_soon(small_disk: Path) -> None:
    folder = small_disk / "quickstart"
    with started(folder) as terminal:
        terminal.wait_for(SUGGESTIONS)
        fill(small_disk)
        filled = time.monotonic()

        assert terminal.ended() == 1
        assert time.monotonic() - filled < 20, "nothing is waited for in vain"
        said = terminal.shown.strip().splitlines()
        assert "error: the disk of" in "".join(said[-3:])
        assert "Traceback" not in terminal.shown

    assert "MB are free" in sentence(run("--data-dir", folder))
    (small_disk / "filler").unlink()
    with started(folder) as again:
        again.wait_for(SUGGESTIONS)
        type_there(folder, APPROVE)
        again.wait_for("hello: SUCCESS")


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            return


def commands(shown: str) -> list[str]:
    starts = ("pipectl", "date", "echo", "sed", "cd ")
    return [line.strip() for line in shown.splitlines() if line.strip().startswith(starts)]


def deployments(folder: Path) -> list[str]:
    """The ids of all deployments, by the command line of the quickstart."""
    answer: dict[str, Any] = json.loads(type_there(folder, "pipectl deployment list --output json"))
    return sorted(each["id"] for each in answer["deployments"])
