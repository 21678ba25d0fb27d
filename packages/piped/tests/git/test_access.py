# SPDX-License-Identifier: Apache-2.0
"""Credentials that reach the remote they are for, and nobody else."""

import base64
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.config import GitConfig, PipedConfig, RepositoryConfig
from pipecd_model.config.values import Base64Secret
from pipecd_test_support.git_remote import Remotes
from piped.git import GitError, RemoteError, Repository, folder_name, repositories
from piped.git.access import Credentials


def encoded(text: str) -> Base64Secret:
    return Base64Secret(base64.b64encode(text.encode()).decode())


class GitHost(ThreadingHTTPServer):
    """Serves the repositories of a folder over HTTP, to the one who knows the password."""

    daemon_threads = True

    def __init__(self, root: Path, credentials: str) -> None:
        super().__init__(("127.0.0.1", 0), GitHandler)
        self.root = root
        self.expected = "Basic " + base64.b64encode(credentials.encode()).decode()
        self.redirect_to = ""
        self.seen: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class GitHandler(BaseHTTPRequestHandler):
    """One request, answered by git's own CGI program."""

    server: GitHost

    def do_GET(self) -> None:
        host = self.server
        host.seen.append(self.headers.get("Authorization"))
        if host.redirect_to:
            self.send_response(302)
            self.send_header("Location", host.redirect_to + self.path)
            self.end_headers()
            return
        if self.headers.get("Authorization") != host.expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        self._cgi()

    do_POST = do_GET  # noqa: N815 - the base class calls it by this name

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _cgi(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            },
            capture_output=True,
            check=True,
            timeout=60,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[[], GitHost]]:
    made: list[GitHost] = []

    def make() -> GitHost:
        server = GitHost(tmp_path, "me:pass:word")
        made.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield make
    for server in made:
        server.shutdown()
        server.server_close()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[..., Repository]]:
    made: list[Repository] = []

    def make(remote: str, git: GitConfig) -> Repository:
        credentials = Credentials(git, tmp_path / "data" / "ssh")
        credentials.prepare()
        made.append(
            Repository(
                id="repo",
                remote=remote,
                branch="main",
                folder=tmp_path / "data" / "mirror",
                access=credentials.for_remote(remote),
            )
        )
        return made[-1]

    yield make
    for repository in made:
        await repository.close()


async def test_the_configured_password_opens_an_http_remote(
    git_remote: Remotes, host: Callable[[], GitHost], opened: Any
) -> None:
    git_remote("private").commit({"a": "1"})
    git = GitConfig(username="me", password=encoded("pass:word\n"))
    repository = opened(f"{host().address}/private", git)

    await repository.open()

    assert (await repository.head()).subject == "a change"
    assert not await repository.fetch()


async def test_credentials_in_the_address_work_and_are_shown_nowhere(
    git_remote: Remotes, host: Callable[[], GitHost], opened: Any
) -> None:
    git_remote("private").commit({"a": "1"})
    address = host().address.replace("http://", "http://me:pass%3Aword@")
    repository = opened(f"{address}/private", GitConfig())

    await repository.open()

    assert "pass" not in repository.remote + repository.mirror.remote
    assert "pass" not in (repository.mirror.folder / "config").read_text()


async def test_without_the_password_the_refusal_is_told_and_nobody_is_asked(
    git_remote: Remotes, host: Callable[[], GitHost], opened: Any
) -> None:
    git_remote("private").commit({"a": "1"})
    repository = opened(f"{host().address}/private", GitConfig())

    with pytest.raises(RemoteError, match="could not read Username"):
        await repository.open()


async def test_a_host_that_we_are_sent_on_to_does_not_get_the_password(
    git_remote: Remotes, host: Callable[[], GitHost], opened: Any
) -> None:
    git_remote("private").commit({"a": "1"})
    first, second = host(), host()
    first.redirect_to = second.address
    git = GitConfig(username="me", password=encoded("pass:word"))
    repository = opened(f"{first.address}/private", git)

    with pytest.raises(RemoteError):
        await repository.open()

    assert first.expected in first.seen
    assert second.seen
    assert set(second.seen) == {None}


async def test_the_password_is_no_argument_and_stays_out_of_reading_processes(
    opened: Any,
) -> None:
    git = GitConfig(username="me", password=encoded("pass:word"))
    repository = opened("https://git.example.com/x", git)

    assert "Basic" not in str(repository.mirror.env)
    assert "Basic" not in repr(Credentials(git, Path("unused")).for_remote("https://x.com/y"))


async def test_an_ssh_remote_gets_the_key_and_a_configuration_of_our_own(
    git_remote: Remotes, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = git_remote()
    remote.commit({"a": "1"})
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n'
        'while [ "$1" != git@host ]; do shift; done\nshift\nexec sh -c "$*"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    git = GitConfig(ssh_key_data=encoded("the key"), host="host", host_name="10.0.0.1")
    repository = opened(f"git@host:{remote.remote}", git)

    await repository.open()

    folder = tmp_path / "data" / "ssh"
    assert (folder / "key").read_text() == "the key\n"
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    assert f"-F {folder}/config -o BatchMode=yes" in (tmp_path / "asked").read_text()
    assert not list((tmp_path / "home").iterdir())


def test_ssh_understands_the_configuration_that_we_write(
    tmp_path: Path, git_remote: Remotes
) -> None:
    users = tmp_path / "users"
    users.write_text("Host host\n  User somebody\n  HostName elsewhere\n")
    key = tmp_path / "the key"
    key.write_text("the key\n")
    git = GitConfig(
        ssh_key_file=str(key), host="host", host_name="10.0.0.1", ssh_config_file_path=str(users)
    )
    Credentials(git, tmp_path / "s s h").prepare()

    done = subprocess.run(
        ["ssh", "-G", "-F", str(tmp_path / "s s h" / "config"), "host"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    said = dict(line.partition(" ")[::2] for line in done.stdout.decode().splitlines())

    assert said["hostname"] == "10.0.0.1"
    assert said["user"] == "somebody"
    assert said["identityfile"] == str(tmp_path / "s s h" / "key")
    assert said["stricthostkeychecking"] == "accept-new"


def test_an_ssh_key_that_cannot_be_read_is_told_with_its_setting(tmp_path: Path) -> None:
    git = GitConfig(ssh_key_file=str(tmp_path / "missing"))

    with pytest.raises(GitError, match="cannot read the ssh key") as failed:
        Credentials(git, tmp_path / "ssh").prepare()
    assert "sshKeyFile" in failed.value.hint


def test_each_repository_of_the_configuration_has_a_folder_of_its_own(tmp_path: Path) -> None:
    ids = ["a", "a/b", "a%2Fb", "..", ".", "ä" * 100, "ä" * 101]
    config = PipedConfig(
        project_id="p",
        piped_id="i",
        api_address="localhost:1",
        repositories=tuple(RepositoryConfig(repo_id=id, remote="/r", branch="main") for id in ids),
    )

    made = repositories(config, tmp_path)

    folders = [repository.mirror.folder for repository in made.values()]
    assert list(made) == ids
    assert len(set(folders)) == len(ids)
    assert {folder.parent for folder in folders} == {tmp_path / "mirrors"}
    assert all(len(folder_name(id)) < 200 for id in ids)
