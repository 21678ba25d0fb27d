# SPDX-License-Identifier: Apache-2.0
"""An object that cannot be read is the answer for its own name, and for no other."""

import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from pipecd_piped.git import DamagedMirrorError, Repository
from pipecd_piped.git.objects import LARGEST, Absent, GitObject, Why
from pipecd_test_support.git_remote import GitRemote, Remotes

BAD: dict[str, Why] = {
    "huge": "too large",
    "line\nbreak": "unnameable",
    "return\r": "unnameable",
    "\n": "unnameable",
    "good\ninfo HEAD": "unnameable",
    "nul\0": "unnameable",
    "bell\a": "unnameable",
    "x" * 5000: "unnameable",
    "x/" * 2500: "unnameable",
    "half \ud800": "unnameable",
    "bytes \udcff": "missing",
    "x" * 3000: "missing",
    "folder missing": "missing",
    "good missing": "missing",
    "good 5": "missing",
    ":(glob)**": "missing",
    ":(nonsense)x": "missing",
    ":!x": "missing",
    ":/": "missing",
    "*": "missing",
    "-h": "missing",
    "--help": "missing",
    "@{-1}": "missing",
    "good^{tree}": "missing",
    "..": "outside",
    "submodule": "missing",
    "submodule/x": "missing",
    "good/below": "nowhere",
    "round": "loop",
    "outside": "outside",
    "up": "outside",
    "dangling": "nowhere",
    "long link": "outside",
}


@pytest.fixture
async def repository(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Repository]:
    async with Repository(
        id="repo",
        remote=git_remote().remote,
        branch="main",
        folder=tmp_path / "mirrors" / "repo",
        sync_interval=timedelta(minutes=10),
    ) as made:
        yield made


def commit_of_odd_tree(remote: GitRemote, entries: list[tuple[str, str, str]]) -> str:
    """A commit beside the work tree: entries that no work tree could hold."""
    lines = "".join(f"{mode} {object_id}\t{name}\0" for mode, object_id, name in entries)
    subprocess.run(
        ["git", "update-index", "-z", "--add", "--index-info"],
        cwd=remote.path,
        input=lines.encode(errors="surrogateescape"),
        check=True,
    )
    remote.git("commit", "--quiet", "--message=odd")
    return str(remote.git("rev-parse", "HEAD"))


def blob(remote: GitRemote, data: bytes) -> str:
    made = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"],
        cwd=remote.path,
        input=data,
        capture_output=True,
        check=True,
    )
    return made.stdout.decode().strip()


async def test_what_is_wrong_with_one_name_leaves_the_others_readable(
    repository: Repository, git_remote: Remotes
) -> None:
    remote = git_remote()
    remote.commit({"good": "here", "after": "also", "folder/x": "1"})
    link = "120000"
    commit = commit_of_odd_tree(
        remote,
        [
            ("100644", blob(remote, b"0" * (LARGEST + 1)), "huge"),
            ("160000", "1" * 40, "submodule"),
            (link, blob(remote, b"round"), "round"),
            (link, blob(remote, b"/etc/passwd"), "outside"),
            (link, blob(remote, b"../up"), "up"),
            (link, blob(remote, b"not/there"), "dangling"),
            (link, blob(remote, b"/" + b"x" * (3 * 1024 * 1024)), "long link"),
        ],
    )
    await repository.open()

    for names in (*([name] for name in BAD), [*BAD]):
        found = await repository.objects(commit, ["good", *names, "after"])

        first, *bad, last = found
        assert isinstance(first, GitObject)
        assert isinstance(last, GitObject)
        assert (first.data, last.data) == (b"here", b"also")
        said = {name: each.why for name, each in zip(names, bad, strict=True)}  # type: ignore[union-attr] # would fail
        assert said == {name: BAD[name] for name in names}


async def test_names_that_git_keeps_and_nobody_expects_are_read(
    repository: Repository, git_remote: Remotes
) -> None:
    remote = git_remote()
    remote.commit({"good": "here"})
    names = [":(glob)x", "*", "-h", "a b", "ä", "bytes \udcff", "x missing", "y 5", "@{-1}", "q'\""]
    odd = blob(remote, b"odd")
    commit = commit_of_odd_tree(remote, [("100644", odd, name) for name in names])
    await repository.open()

    found = await repository.objects(commit, names)

    assert [each.data for each in found if isinstance(each, GitObject)] == [b"odd"] * len(names)


async def test_a_smaller_limit_counts_for_one_call(
    repository: Repository, git_remote: Remotes
) -> None:
    commit = git_remote().commit({"a": "12345", "b": "123456"})
    await repository.open()

    found = await repository.objects(commit, ["a", "b"], largest=5)

    assert isinstance(found[0], GitObject)
    assert found[1] == Absent(why="too large", size=6)


async def test_a_gigantic_object_is_never_brought_into_memory(
    repository: Repository, git_remote: Remotes
) -> None:
    """A few hundred kilobytes of a repository stand for this one."""
    remote = git_remote()
    with (remote.path / "huge").open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    commit = remote.commit({"good": "here"})
    await repository.open()

    huge, good = await repository.objects(commit, ["huge", "good"])

    assert huge == Absent(why="too large", size=300 * 1024 * 1024)
    assert isinstance(good, GitObject)


async def test_one_damaged_object_leaves_the_others_readable_and_the_mirror_is_healed(
    repository: Repository, git_remote: Remotes
) -> None:
    names = [f"file {number}" for number in range(100)]
    commit = git_remote().commit({name: name for name in names})
    await repository.open()
    blobs = {each.path: each.blob_id for each in await repository.files(commit)}
    await repository.close()
    damage(repository, blobs["file 70"], b"garbage")
    damage(repository, blobs["file 71"], None)

    found = await repository.objects(commit, names)

    lost = [name for name, each in zip(names, found, strict=True) if each == Absent(why="lost")]
    assert lost == ["file 70", "file 71"]
    assert sum(isinstance(each, GitObject) for each in found) == 98
    with pytest.raises(DamagedMirrorError, match="'file 70' cannot be read"):
        await repository.read(commit, "file 70")

    await repository.fetch()
    assert await repository.read(commit, "file 70") == b"file 70"
    assert await repository.read(commit, "file 71") == b"file 71"


async def test_an_object_that_stays_unreadable_does_not_keep_the_branch_from_being_followed(
    repository: Repository, git_remote: Remotes
) -> None:
    remote = git_remote()
    commit = remote.commit({"a": "1", "b": "2"})
    await repository.open()
    (broken,) = [each for each in await repository.files(commit) if each.path == "a"]
    for number in range(3):
        await repository.close()
        damage(repository, broken.blob_id, b"garbage")
        lost, read = await repository.objects(commit, ["a", "b"])
        assert lost == Absent(why="lost")
        assert isinstance(read, GitObject)

        pushed = remote.commit({"c": str(number)})
        await repository.fetch()

        assert (await repository.head()).hash == pushed


def damage(repository: Repository, object_id: str, content: bytes | None) -> None:
    """Spoil one object of the mirror, or delete it."""
    objects = repository.mirror.folder / "objects"
    for pack in (objects / "pack").glob("*.pack"):
        data = pack.read_bytes()
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        subprocess.run(
            ["git", f"--git-dir={repository.mirror.folder}", "unpack-objects", "-q"],
            input=data,
            check=True,
        )
    loose = objects / object_id[:2] / object_id[2:]
    loose.chmod(0o644)
    loose.unlink()
    if content is not None:
        loose.write_bytes(content)
