# SPDX-License-Identifier: Apache-2.0
"""Git processes: limits that hold, and nothing left behind."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipecd_piped.git import GitError
from pipecd_piped.git.process import environment, run
from pipecd_runtime.process import own, word

LIMIT = 60.0


@pytest.fixture
def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git that starts a process of its own, tells both ids, and takes for ever."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    pids = tmp_path / "pids"
    program.write_text(
        f"#!/bin/sh\nsleep 1000 &\necho $$ $! > {pids}.new\nmv {pids}.new {pids}\nwait\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return pids


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


def all_gone(pids: Path) -> bool:
    return not any(alive(pid) for pid in pids.read_text().split())


def alive(pid: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def test_a_git_that_takes_too_long_is_ended_with_all_it_started(slow_git: Path) -> None:
    with pytest.raises(GitError, match=r"git fetch took longer than 0\.5s"):
        await run(*own("fetch"), env=environment(), limit=0.5)

    await until(lambda: all_gone(slow_git))


async def test_a_cancelled_git_is_ended_with_all_it_started(slow_git: Path) -> None:
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(LIMIT):
        running = tasks.create_task(run(*own("fetch"), env=environment()))
        await until(slow_git.exists)
        running.cancel()

    await until(lambda: all_gone(slow_git))


async def test_a_failure_is_told_in_gits_words_without_credentials(tmp_path: Path) -> None:
    with pytest.raises(GitError) as failed:
        await run(
            *own("clone", "--quiet"),
            word("http://me:secret@127.0.0.1:1/x"),
            word(tmp_path / "x"),
            env=environment(),
        )

    assert str(failed.value).startswith("git clone failed: unable to access 'http://127.0.0.1:1/x")
    assert "secret" not in str(failed.value)


async def test_no_git_at_all_is_told_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(GitError, match="there is no git") as failed:
        await run(*own("version"), env=environment())
    assert "install" in failed.value.hint


async def test_progress_is_told_while_git_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "git"
    program.write_text(
        "#!/bin/sh\nprintf 'Receiving: 1%%\\rReceiving: 50%%\\r' >&2\n"
        f"while [ ! -e {tmp_path}/told ]; do sleep 0.05; done\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told: list[str] = []

    def take(line: str) -> None:
        told.append(line)
        (tmp_path / "told").touch()

    await run(*own("fetch"), env=environment(), on_progress=take, limit=LIMIT)

    assert told == ["Receiving: 50%"]


async def test_git_never_asks_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_ASKPASS", "/bin/false")
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    monkeypatch.setenv("GIT_TRACE", "1")

    env: dict[str, Any] = environment({"a.b": "c"})

    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert not {"GIT_ASKPASS", "SSH_ASKPASS", "GIT_TRACE"} & env.keys()
    assert (await run(*own("config", "a.b"), env=env)) == b"c\n"


def test_git_has_what_the_operator_set_up_for_it_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = ("HOME", "https_proxy", "NO_PROXY", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "AWS_PROFILE")
    for name in kept:
        monkeypatch.setenv(name, f"the {name}")
    monkeypatch.setenv("PIPECD_PLUGIN_TOKEN", "secret")
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")

    found = environment()

    assert {name: found.get(name) for name in kept} == {name: f"the {name}" for name in kept}
    assert "secret" not in found.values()


async def test_a_word_like_an_option_never_reaches_git() -> None:
    with pytest.raises(GitError, match="would read it as an option"):
        await run(*own("ls-remote"), word("--upload-pack=touch x"), env=environment())
