# SPDX-License-Identifier: Apache-2.0
"""Names of a request that would make git do something else, and mirrors that somebody touched."""

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from pipecd_model.gitnames import BadGitNameError, BranchName
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.git import NoBranchError, NoCommitError, Repository
from pipecd_piped.git.access import RemoteAccess
from pipecd_piped.git.cleaning import clean_mirror
from pipecd_piped.git.process import environment
from pipecd_piped.preview.build import PreviewBuilder
from pipecd_test_support.git_remote import GitRemote, Remotes
from pipecd_wire.model.command_pb2 import Command

SCRIPT = "app/run.sh"


@pytest.fixture
async def start(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Callable[..., Repository]]:
    """Start with the mirror that is there."""
    git_remote().commit({SCRIPT: "honest"})
    made: list[Repository] = []

    def make(branch: str = "main") -> Repository:
        remote, folder = str(tmp_path / "remote"), tmp_path / "mirrors" / "repo"
        made.append(Repository(id="repo", remote=remote, branch=branch, folder=folder))
        return made[-1]

    yield make
    for repository in made:
        await repository.close()


@pytest.fixture
async def repository(start: Callable[..., Repository]) -> Repository:
    made = start()
    await made.open()
    return made


def push_evil(remote: GitRemote) -> str:
    """Push a branch whose files nobody has agreed to; answers its head."""
    remote.git("switch", "--quiet", "--create", "evil")
    made: str = remote.commit({SCRIPT: "evil"})
    remote.git("switch", "--quiet", "main")
    return made


def refs_of(folder: Path) -> set[str]:
    listed = subprocess.run(
        ["git", f"--git-dir={folder}", "for-each-ref", "--format=%(refname)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(listed.stdout.split())


def hostile_branches(head: str) -> list[str]:
    return [
        f"evil:refs/replace/{head}",
        "evil:refs/heads/main",
        f"evil:refs/heads/main evil:refs/replace/{head}",
        f"evil\n+refs/heads/evil:refs/replace/{head}",
        "+evil:refs/heads/main",
        "--upload-pack=touch pwned",
        "-oProxyCommand=touch pwned",
        "evil^{commit}",
        "evil~0",
        "*",
        "@{upstream}",
        "@",
        "HEAD",
        "../tags/x",
        "evil..main",
        "evil.lock",
        "",
    ]


async def test_no_name_of_a_branch_changes_what_an_honest_commit_holds(
    repository: Repository, start: Callable[..., Repository], git_remote: Remotes
) -> None:
    remote = git_remote()
    head = (await repository.head()).hash
    evil = push_evil(remote)

    for name in hostile_branches(head):
        with pytest.raises(BadGitNameError, match="is not the name of a branch"):
            await repository.build_merge(evil, name)
        assert refs_of(repository.mirror.folder) == {"refs/heads/main"}

    restarted = start()
    await restarted.fetch()
    for each in (repository, restarted):
        assert (await each.head()).hash == head
        assert await each.read(head, SCRIPT) == b"honest"
        assert [file.path for file in await each.files(head)] == [SCRIPT]


async def test_a_preview_with_a_hostile_branch_is_refused_before_git(
    repository: Repository, git_remote: Remotes
) -> None:
    head = (await repository.head()).hash
    evil = push_evil(git_remote())
    builder = PreviewBuilder(
        repositories={"repo": repository},
        state=ControlPlaneState(),
        configs=None,  # type: ignore[arg-type]  # it is not asked
        previewer=None,  # type: ignore[arg-type]  # it is not asked
    )

    for name in hostile_branches(head):
        wanted = Command.BuildPlanPreview(
            repository_id="repo", base_branch="main", head_branch=name, head_commit=evil
        )
        with pytest.raises(BadGitNameError):
            await builder.build(wanted)

    assert refs_of(repository.mirror.folder) == {"refs/heads/main"}


async def test_a_branch_that_does_not_exist_is_a_sentence(
    repository: Repository, git_remote: Remotes
) -> None:
    evil = push_evil(git_remote())

    with pytest.raises(NoBranchError, match="has no branch 'nope'"):
        await repository.build_merge(evil, "nope")
    # Also when the commit is known already.
    with pytest.raises(NoBranchError, match="has no branch 'nope'"):
        await repository.build_merge((await repository.head()).hash, "nope")


async def test_what_a_preview_brings_gets_no_name_in_the_mirror(
    repository: Repository, git_remote: Remotes
) -> None:
    evil = push_evil(git_remote())

    merged = await repository.build_merge(evil, "evil")

    assert await repository.read(merged.hash, SCRIPT) == b"evil"
    assert refs_of(repository.mirror.folder) == {"refs/heads/main"}


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/evil", "--all", "main^{tree}", "-p"])
async def test_only_a_whole_hash_is_a_commit(
    repository: Repository, git_remote: Remotes, name: str
) -> None:
    push_evil(git_remote())

    with pytest.raises(NoCommitError):
        await repository.commit(name)
    for ask in (repository.files, lambda each: repository.read(each, SCRIPT)):
        with pytest.raises(BadGitNameError, match="is not the hash of a commit"):
            await ask(name)
    with pytest.raises(BadGitNameError, match="is not the hash of a commit"):
        await repository.kind(name, SCRIPT)
    with pytest.raises(BadGitNameError, match="is not the hash of a commit"):
        await repository.build_merge(name, "evil")


async def test_a_path_with_magic_is_a_path(repository: Repository, git_remote: Remotes) -> None:
    """`:(top)` and `*` mean something else for git, unless it is told otherwise."""
    commit = git_remote().commit({":(top)x": "1", "*": "2"})
    await repository.fetch()

    assert await repository.read(commit, ":(top)x") == b"1"
    assert await repository.read(commit, "*") == b"2"
    assert await repository.read(commit, ":(glob)**") is None
    assert await repository.read(commit, "?") is None


def plant(mirror: Path, head: str, evil: str) -> None:
    """What an earlier piped, or somebody with its rights, may have left."""
    git = ["git", f"--git-dir={mirror}"]
    subprocess.run([*git, "fetch", "--quiet", "origin", "evil"], check=True)
    for ref in (f"refs/replace/{head}", "refs/heads/evil", "refs/remotes/x/y", "refs/tags/t"):
        subprocess.run([*git, "update-ref", ref, evil], check=True)
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    subprocess.run([*git, "update-ref", "refs/replace/" + "1" * 40, evil], check=True)
    subprocess.run([*git, "symbolic-ref", "refs/heads/link", "refs/heads/evil"], check=True)
    for name, text in (
        ("info/grafts", f"{head} {evil}\n"),
        ("info/attributes", "* filter=evil\n"),
        ("hooks/post-checkout", "#!/bin/sh\ntouch /tmp/never\n"),
        ("remotes/origin", "URL: /elsewhere\n"),
        ("objects/info/alternates", "/elsewhere\n"),
        ("shallow", f"{head}\n"),
    ):
        (mirror / name).parent.mkdir(exist_ok=True)
        (mirror / name).write_text(text)


@pytest.fixture
def planted(repository: Repository, git_remote: Remotes, tmp_path: Path) -> Path:
    remote = git_remote()
    head = remote.git("rev-parse", "main")
    evil = push_evil(remote)
    mirror = repository.mirror.folder
    with (mirror / "config").open("a") as settings:
        settings.write(f'[remote "origin"]\n\turl = {tmp_path}/remote\n[core]\n\tsshCommand=x\n')
    plant(mirror, head, evil)
    # The attack works on a git that nobody told about it.
    read = ["git", f"--git-dir={mirror}", "cat-file", "blob", f"{head}:{SCRIPT}"]
    assert subprocess.run(read, check=True, capture_output=True).stdout == b"evil"
    return mirror


async def test_a_mirror_that_somebody_touched_is_cleaned_at_the_start(
    planted: Path, start: Callable[..., Repository]
) -> None:
    restarted = start()
    async with aclosing(restarted.watch()) as heads:
        head = await anext(heads)

    assert await restarted.read(head.hash, SCRIPT) == b"honest"
    assert refs_of(planted) == {"refs/heads/main"}
    assert not (planted / "refs" / "replace").exists()
    left = set(os.listdir(planted))  # noqa: PTH208 - names are enough
    assert left <= {"HEAD", "config", "objects", "refs", "packed-refs"}
    assert not (planted / "objects" / "info" / "alternates").exists()
    assert "sshCommand" not in (planted / "config").read_text()


async def test_a_planted_replacement_counts_for_nothing_even_before_it_is_removed(
    planted: Path, repository: Repository
) -> None:
    """The repository was opened before somebody planted it."""
    head = (await repository.head()).hash
    await repository.close()

    assert await repository.read(head, SCRIPT) == b"honest"


async def test_a_clean_mirror_is_left_as_it_is(repository: Repository) -> None:
    folder = repository.mirror.folder
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    assert clean_mirror(folder, BranchName("main")) == []
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


async def test_a_ref_that_names_another_one_is_not_followed(
    repository: Repository, start: Callable[..., Repository], git_remote: Remotes
) -> None:
    push_evil(git_remote())
    head = (await repository.head()).hash
    (repository.mirror.folder / "refs" / "heads" / "main").write_text("ref: refs/heads/evil\n")

    restarted = start()
    await restarted.open()

    assert (await restarted.head()).hash == head


async def test_a_mirror_follows_the_configured_branch_to_another_one(
    repository: Repository, start: Callable[..., Repository], git_remote: Remotes
) -> None:
    evil = push_evil(git_remote())

    moved = start("evil")
    await moved.open()

    assert (await moved.head()).hash == evil
    assert refs_of(moved.mirror.folder) == {"refs/heads/evil"}


@pytest.mark.parametrize("branch", ["-x", "a:b", "a b", "HEAD"])
def test_a_repository_cannot_be_made_with_a_hostile_branch(tmp_path: Path, branch: str) -> None:
    with pytest.raises(BadGitNameError):
        Repository(id="repo", remote="/srv/x", branch=branch, folder=tmp_path)


def test_an_address_that_runs_something_is_refused_before_git(tmp_path: Path) -> None:
    for address in ("ext::touch x", "--upload-pack=touch x", "ssh://-oProxyCommand=touch/x"):
        with pytest.raises(BadGitNameError):
            Repository(
                id="repo",
                remote="/srv/x",
                branch="main",
                folder=tmp_path,
                access=RemoteAccess(address=address),
            )


def test_a_git_of_ours_takes_a_hash_for_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_REPLACE_REF_BASE", "refs/evil/")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "ext")
    monkeypatch.setenv("GIT_PROXY_COMMAND", "evil")

    found = environment()

    assert found["GIT_NO_REPLACE_OBJECTS"] == "1"
    assert found["GIT_GRAFT_FILE"] == os.devnull
    assert found["GIT_ALLOW_PROTOCOL"] == "file:git:http:https:ssh"
    assert not {"GIT_REPLACE_REF_BASE", "GIT_PROXY_COMMAND"} & found.keys()
    assert environment(helper="codecommit")["GIT_ALLOW_PROTOCOL"].endswith(":codecommit")
