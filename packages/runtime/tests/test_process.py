# SPDX-License-Identifier: Apache-2.0
"""The one door: what a child gets, and what it never gets."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipecd_runtime import process as door
from pipecd_runtime.process import Argument, BadArgumentError, join_option, own, vouch_for, word

LIMIT = 60.0
PATH = {"PATH": os.environ["PATH"]}


async def output_of(*arguments: Argument, **options: object) -> str:
    child = await door.start(arguments, env=PATH, stdout=door.PIPE, **options)  # type: ignore[arg-type]
    async with asyncio.timeout(LIMIT):
        output, _ = await child.communicate()
    return output.decode()


@pytest.mark.parametrize("text", ["-x", "--upload-pack=touch x", "-", "--"])
async def test_a_word_from_outside_that_looks_like_an_option_is_refused(text: str) -> None:
    with pytest.raises(BadArgumentError, match="would read it as an option"):
        await door.start((*own("echo"), word(text)), env=PATH)
    with pytest.raises(BadArgumentError):
        door.run_blocking((*own("echo"), word("plain"), word(text)), env=PATH)
    with pytest.raises(BadArgumentError):
        door.spawn_detached((*own("/bin/echo"), word(text)), env=PATH, stdin=0, stdout=1)


@pytest.mark.parametrize("end", ["--", "--end-of-options"])
async def test_after_the_end_of_options_any_word_is_an_operand(end: str) -> None:
    assert await output_of(*own("echo", "a"), *own(end), word("-x")) == f"a {end} -x\n"


async def test_a_word_from_outside_does_not_end_the_options() -> None:
    with pytest.raises(BadArgumentError):
        await door.start((*own("echo"), word("a"), word("--"), word("-x")), env=PATH)


async def test_a_value_stays_in_the_argument_of_its_option() -> None:
    assert await output_of(*own("echo"), join_option("--dir=", "-x --evil")) == "--dir=-x --evil\n"
    for name in ("--dir", "dir=", "", "--a b=", "-="):
        with pytest.raises(BadArgumentError, match="is not the name of an option"):
            join_option(name, "x")


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_no_program_can_get_is_refused_when_it_is_made(text: str) -> None:
    for make in (word, own, lambda each: vouch_for([each]), lambda each: join_option("--a=", each)):
        with pytest.raises(BadArgumentError):
            make(text)


def test_only_a_check_makes_an_argument() -> None:
    with pytest.raises(TypeError, match="is made by own"):
        Argument("-x", is_ours=True, key=object())


async def test_a_plain_text_is_no_argument() -> None:
    with pytest.raises(TypeError, match="is not an Argument"):
        await door.start(("echo", "-x"), env=PATH)  # type: ignore[arg-type]
    with pytest.raises(BadArgumentError, match="no program"):
        await door.start((), env=PATH)


async def test_a_child_has_the_variables_that_were_named_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "x")

    child = await door.start(own("/usr/bin/env"), env={"ONE": "1"}, stdout=door.PIPE)
    output, _ = await child.communicate()

    assert output == b"ONE=1\n"
    assert door.run_blocking(own("/usr/bin/env"), env={"ONE": "1"}).stdout == "ONE=1\n"


@pytest.mark.parametrize("name", ["", "A=B", "A\0"])
async def test_what_cannot_be_a_variable_is_refused(name: str) -> None:
    with pytest.raises(BadArgumentError, match="cannot be a variable"):
        await door.start(own("true"), env={name: "x"})
    with pytest.raises(BadArgumentError, match="cannot be a variable"):
        await door.start(own("true"), env={"A": "x\0y"})


def test_the_operators_environment_is_without_what_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "OF_THE_OPERATOR": "1",
        "PIPECD_PLUGIN_TOKEN": "2",
        "PIPECD_CHAOS_KILL_AT": "3",
        "PIPECD_PLUGIN_CACHE": "4",
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    assert set(given) & door.operator_environment().keys() == {"OF_THE_OPERATOR"}
    some = door.operator_environment(also=["PIPECD_CHAOS_", "PIPECD_PLUGIN_CACHE"])
    assert set(given) - some.keys() == {"PIPECD_PLUGIN_TOKEN", "GRPC_ENABLE_FORK_SUPPORT"}
    assert door.choose_environment(["OF_THE_OPERATOR", "OF_NOBODY"]) == {"OF_THE_OPERATOR": "1"}
    assert "OF_THE_OPERATOR" not in door.choose_environment(["OF_THE", "PATH"])


SHOW = """
import json, os, sys
open_ones = []
for number in range(3, 256):
    try:
        os.fstat(number)
    except OSError:
        continue
    open_ones.append(number)
told = {"fds": open_ones, "session": os.getsid(0) == os.getpid(), "stdin": os.read(0, 1).decode()}
sys.stdout.write(json.dumps(told))
"""
ALONE = '{"fds": [], "session": true, "stdin": ""}'


@pytest.fixture
def inheritable() -> Iterator[int]:
    """A descriptor that any child would get unasked."""
    number = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(number, True)
    yield number
    os.close(number)


async def test_a_child_is_alone_with_the_files_that_it_was_given(inheritable: int) -> None:
    show = (word(sys.executable), *own("-I", "-c"), word(SHOW))

    assert await output_of(*show) == ALONE
    assert door.run_blocking(show, env=PATH).stdout == ALONE
    assert await output_of(*show, pass_fds=[inheritable]) == ALONE.replace("[]", f"[{inheritable}]")


def test_a_detached_child_is_alone_too(inheritable: int) -> None:
    show = (word(sys.executable), *own("-I", "-c"), word(SHOW))
    source, end = os.pipe()
    os.close(end)
    reader, writer = os.pipe()

    pid = door.spawn_detached(show, env={}, stdin=source, stdout=writer)
    os.close(writer)
    os.close(source)
    with os.fdopen(reader) as said:
        assert said.read() == ALONE

    assert os.waitpid(pid, 0)[1] == 0


async def test_a_program_that_is_not_there_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        await door.start(own("no-such-program"), env=PATH)


def test_the_outputs_and_the_code_of_a_finished_child_are_returned() -> None:
    script = word("echo out; echo err >&2; printf '\\377'; exit 3")

    done = door.run_blocking((*own("/bin/sh", "-c", "--"), script), env=PATH)

    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n\ufffd", "err\n")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children() -> set[str]:
    """The processes that this thread has started."""
    return {*Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()}


def wait_until(holds: Callable[[], bool]) -> None:
    over = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < over, "it never became true"
        time.sleep(0.01)


async def test_a_start_that_is_cancelled_leaves_nothing_of_the_childs_group(tmp_path: Path) -> None:
    """The child may have come far before asyncio says that it has started."""
    pids = tmp_path / "pids"
    script = word(f"sleep 1000 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
    before = children()
    starting = asyncio.create_task(door.start((*own("/bin/sh", "-c", "--"), script), env=PATH))
    while children() == before:  # noqa: ASYNC110 - one turn of the loop at a time
        await asyncio.sleep(0)
    wait_until(pids.exists)  # the loop stands still while the child goes on
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.to_thread(
        wait_until,
        lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()),
    )


def test_an_interrupted_run_leaves_nothing_of_the_childs_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = word(f"sleep 1000 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
    thread = threading.get_ident()

    def interrupt() -> None:
        wait_until(pids.exists)
        signal.pthread_kill(thread, signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        door.run_blocking((*own("/bin/sh", "-c", "--"), script), env=PATH)
    watcher.join()

    wait_until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))
