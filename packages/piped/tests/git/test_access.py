# SPDX-License-Identifier: Apache-2.0
"""Credentials that reach the remote they are for, and nobody else."""

import base64
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.config import GitConfig, PipedConfig, RepositoryConfig
from pipecd_model.config.values import Base64Secret
from pipecd_piped.git import GitError, RemoteError, Repository, folder_name, repositories
from pipecd_piped.git.access import Credentials
from pipecd_test_support.git_http import GitHost
from pipecd_test_support.git_remote import Remotes


def encoded(text: str) -> Base64Secret:
    return Base64Secret(base64.b64encode(text.encode()).decode())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[[], GitHost]]:
    with ExitStack() as opened:
        yield lambda: opened.enter_context(GitHost(tmp_path, "me:pass:word").serving())


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
