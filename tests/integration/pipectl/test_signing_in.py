# SPDX-License-Identifier: Apache-2.0
"""Signing in as people do: pipectl, a browser, and a control plane of their own processes."""

import asyncio
import contextlib
import json
import os
import pty
import re
import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from pipecd_test_support.controlplane_process import running_server
from pipecd_test_support.piped_site import ServerProcess
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2, chains_pb2, repositories_pb2, windows_pb2
from pipecd_wire.webservice import service_pb2 as web

BIN = Path(sys.executable).parent
LIMIT_SECONDS = 120
FOREIGN = ("PIPECTL_", "SSL_CERT", "XDG_", "DISPLAY", "WAYLAND")


@dataclass
class Done:
    code: int
    stdout: str
    stderr: str


@dataclass
class Desk:
    """Somebody's terminal: pipectl with a home folder of its own."""

    home: Path
    address: str
    password: str
    environment: dict[str, str] = field(default_factory=dict)

    def make_environment(self) -> dict[str, str]:
        clean = {name: each for name, each in os.environ.items() if not name.startswith(FOREIGN)}
        return {**clean, "HOME": str(self.home), **self.environment}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            BIN / "pipectl",
            *arguments,
            env=self.make_environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, stdin: str = "") -> Done:
        process = await self.start(*arguments)
        async with asyncio.timeout(LIMIT_SECONDS):
            out, err = await process.communicate(stdin.encode())
        return Done(process.returncode or 0, out.decode(), err.decode())

    async def login(self, *arguments: str) -> Done:
        return await self.run(
            "login",
            f"http://{self.address}",
            "--username",
            "admin",
            "--password-stdin",
            *arguments,
            stdin=f"{self.password}\n",
        )

    @property
    def context_file(self) -> Path:
        (found,) = (self.home / ".config" / "pipectl" / "contexts").iterdir()
        return found


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with running_server(tmp_path / "data") as server:
        password = (tmp_path / "data" / "admin.password").read_text().strip()
        home = tmp_path / "home"
        home.mkdir()
        yield Desk(home=home, address=server.address, password=password)


async def test_a_person_signs_in_with_a_password_works_and_signs_out(desk: Desk) -> None:
    signed_in = await desk.login()
    assert signed_in.code == 0, signed_in.stderr
    assert "signed in as admin to the project default" in signed_in.stdout
    assert stat.S_IMODE(desk.context_file.stat().st_mode) == 0o600
    assert desk.password not in desk.context_file.read_text()

    made = await desk.run("piped", "register", "--name", "production")
    assert made.code == 0, made.stderr
    listed = await desk.run("piped", "list", "-o", "table")
    assert "production" in listed.stdout
    who = json.loads((await desk.run("whoami", "-o", "json")).stdout)
    assert (who["user"], who["project"]) == ("admin", "default")

    token = json.loads(desk.context_file.read_text())["session"]
    out = await desk.run("logout")
    assert (out.code, out.stdout) == (0, f"signed out of default@{desk.address}\n")
    assert token not in desk.context_file.read_text()
    refused = await desk.run("piped", "list")
    assert refused.code == 4
    assert "pipectl login" in refused.stderr


async def test_a_person_signs_in_with_a_browser(desk: Desk) -> None:
    process = await desk.start("login", f"http://{desk.address}")
    assert process.stderr is not None
    shown: list[str] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while not any(line.startswith("Waiting") for line in shown):
            shown.append((await process.stderr.readline()).decode())
    url = shown[0].split()[1]
    code = shown[1].split()[1]
    assert url == f"http://{desk.address}/auth/terminal"
    assert re.fullmatch("[B-Z]{4}-[B-Z]{4}", code)

    base = f"http://{desk.address}"
    async with httpx2.AsyncClient(
        base_url=base, trust_env=False, headers={"origin": base}, follow_redirects=True
    ) as browser:
        page = await browser.get(url)
        assert "Password" in page.text
        form = {
            "project": "default",
            "username": "admin",
            "password": desk.password,
            "next": "/auth/terminal",
        }
        page = await browser.post("/auth/login/static", data=form)
        assert "The code that" in page.text
        page = await browser.post("/auth/terminal", data={"code": code})
        assert "pipectl on " in page.text
        await browser.post("/auth/terminal/answer", data={"code": code, "answer": "confirm"})

    async with asyncio.timeout(LIMIT_SECONDS):
        out, err = await process.communicate()
    assert process.returncode == 0, err
    assert b"signed in as admin to the project default" in out
    token = json.loads(desk.context_file.read_text())["session"]
    assert token not in out.decode() + err.decode()
    assert (await desk.run("application", "list")).code == 0


async def read_line(start: str, process: asyncio.subprocess.Process) -> str:
    """Returns the line on stderr that begins so."""
    assert process.stderr is not None
    async with asyncio.timeout(LIMIT_SECONDS):
        while line := (await process.stderr.readline()).decode():
            if line.startswith(start):
                return line
    raise AssertionError(f"it never said {start!r}")


@pytest.mark.sqlite
async def test_a_sign_in_that_waits_while_the_server_is_restarted_says_what_to_do(
    tmp_path: Path,
) -> None:
    """The code is gone with the server that made it: whoever waits must not wait for nothing.

    Servers that share a PostgreSQL share the codes, too: there the sign-in goes on.
    """
    server = ServerProcess(tmp_path)
    await asyncio.to_thread(server.start)
    desk = Desk(home=tmp_path, address=server.address, password="")
    process = await desk.start("login", f"http://{desk.address}")
    try:
        await read_line("Waiting", process)
    finally:
        await asyncio.to_thread(server.stop)
    warned = await read_line("warning:", process)
    await asyncio.to_thread(server.start)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            _, rest = await process.communicate()
    finally:
        await asyncio.to_thread(server.stop)

    assert warned.endswith("; waiting for it\n")
    assert process.returncode == 1
    assert "the code is not good any more" in rest.decode()
    assert "the control plane was restarted; run `pipectl login` again" in rest.decode()


async def test_a_wrong_password_is_a_sentence(desk: Desk) -> None:
    desk.password = "wrong"  # noqa: S105

    refused = await desk.login()

    assert (refused.code, refused.stderr) == (4, "error: wrong project, user name or password\n")
    assert not (desk.home / ".config").exists()


async def test_a_session_that_was_ended_elsewhere_names_the_way_back(desk: Desk) -> None:
    await desk.login()
    saved = json.loads(desk.context_file.read_text())
    await desk.run("logout")
    desk.context_file.write_text(json.dumps(saved))

    refused = await desk.run("deployment", "list")

    assert refused.code == 4
    assert refused.stderr == (
        f"error: the session of the context 'default@{desk.address}' has ended"
        " (sign in again: pipectl login)\n"
    )
    again = await desk.run(
        "login", "--username", "admin", "--password-stdin", stdin=f"{desk.password}\n"
    )
    assert again.code == 0, again.stderr
    assert (await desk.run("deployment", "list")).code == 0


async def test_keys_are_made_for_programs_and_win_over_the_session(
    desk: Desk, tmp_path: Path
) -> None:
    await desk.login()
    key_file = tmp_path / "ci.key"

    made = await desk.run(
        "api-key", "create", "ci", "--expires-in", "1h", "--key-file", str(key_file), "-o", "json"
    )
    assert made.code == 0, made.stderr
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert key_file.read_text().strip() not in made.stdout + made.stderr
    key_id = json.loads(made.stdout)["id"]
    assert "read-only" in (await desk.run("api-key", "list", "-o", "table")).stdout

    by_key = ("--api-key-file", str(key_file))
    assert (await desk.run("application", "list", *by_key)).code == 0
    denied = await desk.run("piped", "register", "--name", "x", *by_key)
    assert (denied.code, "may only read" in denied.stderr) == (4, True)
    other = await desk.run("api-key", "create", "x", *by_key)
    assert (other.code, "a key cannot make another" in other.stderr) == (4, True)
    again = await desk.run("api-key", "create", "ci", "--key-file", str(key_file))
    assert (again.code, "exists already" in again.stderr) == (1, True)

    unknown = await desk.run("api-key", "disable", "nothing")
    assert (unknown.code, "'nothing'" in unknown.stderr) == (4, True)
    tried = await desk.run("api-key", "disable", "ci", "--dry-run")
    assert (tried.code, key_id in tried.stdout + tried.stderr) == (0, True)
    assert (await desk.run("application", "list", *by_key)).code == 0
    assert (await desk.run("api-key", "disable", key_id[:8])).code == 0
    assert (await desk.run("application", "list", *by_key)).code == 4
    assert (await desk.run("application", "list")).code == 0


async def test_groups_of_the_provider_are_given_roles(desk: Desk) -> None:
    await desk.login()

    assert (await desk.run("user-group", "add", "ops", "--role", "Admin")).code == 0
    assert (await desk.run("user-group", "add", "dev", "--role", "Viewer")).code == 0
    wrong = await desk.run("user-group", "add", "x", "--role", "Nobody")
    assert (wrong.code != 0, wrong.stderr.startswith("error: ")) == (True, True)
    assert (await desk.run("user-group", "delete", "dev")).code == 0

    listed = json.loads((await desk.run("user-group", "list", "-o", "json")).stdout)
    assert listed == {"userGroups": [{"group": "ops", "role": "Admin"}]}


async def test_events_and_traces_are_listed_for_people(desk: Desk) -> None:
    await desk.login()
    empty = await desk.run("event", "list", "-o", "table")
    assert (empty.code, empty.stderr) == (0, "no event\n")
    commit = ("--commit-hash", "c" * 40, "--commit-url", "https://git.example/c")
    told = await desk.run(
        "event", "register", "--name", "image", "--data", "v1", "--labels", "app=web", *commit
    )
    assert told.code == 0, told.stderr
    event_id = json.loads(told.stdout)["event_id"]

    shown = await desk.run("event", "list", "--label", "app:web", "-o", "wide")
    none = await desk.run("event", "list", "--status", "failure", "-o", "table")
    traces = await desk.run("trace", "list", "-o", "table")

    assert event_id in shown.stdout
    assert "NOT_HANDLED" in shown.stdout
    assert "app:web" in shown.stdout
    assert none.stderr == "no event\n"
    assert traces.code == 0, traces.stderr
    key = await desk.run("event", "list", "--api-key", "a.b")
    assert key.code != 0
    assert "events are listed by people" in key.stderr


async def test_contexts_are_listed_used_renamed_and_deleted(desk: Desk) -> None:
    await desk.login("--context", "first")
    await desk.login("--context", "second")
    listed = json.loads((await desk.run("context", "list", "-o", "json")).stdout)["contexts"]
    assert [(each["name"], each["current"]) for each in listed] == [
        ("first", False),
        ("second", True),
    ]
    assert "session" not in listed[0]

    await desk.run("context", "use", "first")
    await desk.run("context", "rename", "first", "work")
    shown = json.loads((await desk.run("context", "show", "-o", "json")).stdout)
    assert (shown["name"], shown["current"], shown["user"]) == ("work", True, "admin")
    kept = await desk.run("context", "delete", "work")
    assert (kept.code, "pipectl logout --context work" in kept.stderr) == (2, True)
    await desk.run("logout", "--context", "work")
    assert (await desk.run("context", "delete", "work")).code == 0
    gone = await desk.run("application", "list", "--context", "work")
    assert (gone.code, gone.stderr) == (
        4,
        "error: there is no context 'work' (known: second)\n",
    )
    desk.environment["PIPECTL_CONTEXT"] = "second"
    assert (await desk.run("application", "list")).code == 0


async def test_a_variable_that_would_win_over_the_session_is_named(desk: Desk) -> None:
    desk.environment["PIPECTL_API_KEY"] = "k.s"

    signed_in = await desk.login()

    assert signed_in.code == 0
    assert signed_in.stderr == "warning: PIPECTL_API_KEY is set, and wins over this session\n"


async def test_a_password_that_is_typed_is_not_shown(desk: Desk) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        "setsid",
        "--ctty",
        "--wait",
        BIN / "pipectl",
        "login",
        f"http://{desk.address}",
        "--username",
        "admin",
        env=desk.make_environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = await read_until(ours, "Password: ")
    os.write(ours, f"{desk.password}\n".encode())
    shown += await read_until(ours, "signed in as admin")

    async with asyncio.timeout(LIMIT_SECONDS):
        assert await process.wait() == 0
    os.close(ours)
    assert desk.password not in shown


async def read_until(terminal: int, wanted: str) -> str:
    """Returns what a terminal shows up to some words."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(terminal, readable.set)
    seen = b""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while wanted.encode() not in seen:
                await readable.wait()
                readable.clear()
                with contextlib.suppress(BlockingIOError):
                    seen += os.read(terminal, 4096)
    finally:
        loop.remove_reader(terminal)
    return seen.decode()


async def test_a_session_is_sent_to_its_own_address_only(desk: Desk) -> None:
    await desk.login()

    elsewhere = await desk.run("application", "list", "--address", "http://127.0.0.1:1")
    here = await desk.run("application", "list", "--address", f"http://{desk.address}")

    assert elsewhere.code == 2
    assert "pipectl login http://127.0.0.1:1" in elsewhere.stderr
    assert here.code == 0, here.stderr


async def test_a_server_that_is_away_leaves_the_session_unless_told(desk: Desk) -> None:
    await desk.login()
    saved = json.loads(desk.context_file.read_text())
    desk.context_file.write_text(json.dumps({**saved, "address": "127.0.0.1:1"}))

    away = await desk.run("logout")
    assert (away.code, "pipectl logout --local" in away.stderr) == (5, True)
    assert saved["session"] in desk.context_file.read_text()
    forgotten = await desk.run("logout", "--local")

    assert forgotten.code == 0
    assert saved["session"] not in desk.context_file.read_text()


async def test_a_session_file_that_others_can_read_is_closed(desk: Desk) -> None:
    await desk.login()
    desk.context_file.chmod(0o644)

    assert (await desk.run("application", "list")).code == 0

    assert stat.S_IMODE(desk.context_file.stat().st_mode) == 0o600


def test_every_service_that_pipectl_calls_takes_sessions() -> None:
    """So that no command works with an API key alone."""
    for file in (api, access_pb2, api_pb2, chains_pb2, repositories_pb2, windows_pb2, web):
        for service in file.DESCRIPTOR.services_by_name.values():
            callers = service.GetOptions().Extensions[rights_pb2.callers]
            assert rights_pb2.SESSION in callers, service.full_name
