# SPDX-License-Identifier: Apache-2.0
"""Commits of other repositories, over real HTTP: what is fetched, and who sees the password."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_sdk.kit.git import GitFetchError, fetch_commit
from pipecd_test_support.git_http import GitHost

SECRET = "s3cret-p4ss"  # noqa: S105 - of a host that the test runs
CREDENTIALS = f"me:{SECRET}@1"


class Listing(list[str | None]):
    """Reads the arguments of all processes whenever a request comes: git waits for its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[str] = []

    def append(self, item: str | None) -> None:
        super().append(item)
        self.arguments += list_arguments()


def list_arguments() -> Iterator[str]:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended


def run_git(folder: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    command = ["git", *settings, "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    """Has one repository, `code`, whose files are opened by the credentials."""
    root = tmp_path / "host"
    root.mkdir()
    with GitHost(root, CREDENTIALS).serving() as host:
        host.make_repository("code")
        work = tmp_path / "work"
        work.mkdir()
        run_git(work, "init", "-q", "-b", "main")
        (work / "a.txt").write_text("1")
        run_git(work, "add", "-A")
        run_git(work, "commit", "-qm", "a change")
        run_git(work, "push", "-q", str(root / "code"), "main")
        yield host


def name_with(host: GitHost, credentials: str) -> str:
    return f"{host.address}/code".replace("://", f"://{credentials}@")


async def test_a_password_opens_a_repository_and_is_seen_by_nobody_else(
    host: GitHost, tmp_path: Path
) -> None:
    host.seen = listing = Listing()
    clone = tmp_path / "clone"

    await fetch_commit(
        name_with(host, f"me:{SECRET}%401"), "main", into=clone, what="fetching the code"
    )

    assert (clone / "a.txt").read_text() == "1"
    assert any("git-remote-http" in each for each in listing.arguments), "it was running"
    assert not any(SECRET in each for each in listing.arguments)
    kept = [each for each in (clone / ".git").rglob("*") if each.is_file()]
    assert not any(SECRET.encode() in each.read_bytes() for each in kept)


async def test_a_wrong_password_is_not_shown_either(host: GitHost, tmp_path: Path) -> None:
    with pytest.raises(GitFetchError) as failed:
        await fetch_commit(
            name_with(host, f"me:{SECRET}"), "main", into=tmp_path / "clone", what="fetching it"
        )

    assert "fetching it failed" in str(failed.value)
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize("start", ["ssh://git", "git::https://me", "ext://me"])
async def test_a_password_that_git_would_show_is_refused(tmp_path: Path, start: str) -> None:
    with pytest.raises(GitFetchError, match="only an address with http or https may have") as error:
        await fetch_commit(
            f"{start}:{SECRET}@127.0.0.1/code", "main", into=tmp_path / "clone", what="fetching it"
        )

    assert SECRET not in error.value.reason()
    assert not (tmp_path / "clone").exists()
