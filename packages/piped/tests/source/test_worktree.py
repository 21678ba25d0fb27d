# SPDX-License-Identifier: Apache-2.0
"""A tree is exactly its commit, whatever its last user did to it."""

import os
import socket
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_piped.git import GitError, Repository
from pipecd_piped.source import GitIdentity, Worktree
from pipecd_test_support.git_remote import GitRemote, Remotes

FILES = {
    "top": "top",
    "app/main.py": "print()",
    "app/deep/er/file": "deep",
    "run.sh": "#!/bin/sh\n",
    ".gitignore": "*.log\n",
}


class Bench:
    """A remote with two commits, its mirror, and one tree."""

    def __init__(self, remote: GitRemote, folder: Path) -> None:
        self.remote = remote
        (remote.path / "link").symlink_to("top")
        remote.commit(FILES)
        (remote.path / "run.sh").chmod(0o755)
        self.first = remote.commit()
        self.second = remote.commit({"app/main.py": "print(2)", "new/file": "new", "top": None})
        self.repository = Repository(
            id="repo", remote=remote.remote, branch="main", folder=folder / "mirror"
        )
        self.tree = Worktree(folder / "trees" / "1", self.repository, GitIdentity())

    def expected(self, commit: str) -> dict[str, tuple[str, bytes]]:
        """What git itself writes for the commit."""
        folder = self.remote.path.parent / f"expected-{commit}"
        if not folder.exists():
            self.remote.git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        return content(folder)


@pytest.fixture
async def bench(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(git_remote(), tmp_path)
    await made.repository.open()
    yield made
    await made.repository.close()


def content(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Everything in a folder but its `.git`: kind and rights, and what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(".git/") or name == ".git":
            continue
        kind = stat.filemode(path.lstat().st_mode)
        data = b""
        if path.is_symlink():
            data = os.fsencode(path.readlink())
        elif path.is_file():
            data = path.read_bytes()
        found[name] = (kind, data)
    return found


def shell(folder: Path, script: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", script], cwd=folder, capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode()


async def test_a_tree_holds_the_whole_commit(bench: Bench) -> None:
    await bench.tree.checkout(bench.first)

    assert content(bench.tree.path) == bench.expected(bench.first)
    assert bench.tree.commit == bench.first


async def test_a_switch_there_and_back_leaves_no_trace(bench: Bench) -> None:
    for commit in (bench.first, bench.second, bench.first):
        await bench.tree.checkout(commit)
        assert content(bench.tree.path) == bench.expected(commit)


ABUSES = {
    "untracked and ignored files": "mkdir -p out/put; echo x > out/put/x; echo x > app/a.log",
    "changed files": "echo changed > app/main.py; rm top run.sh",
    "a change of equal length with the old times": (
        "cp -p top ../saved; printf tip > top; touch -r ../saved top"
    ),
    "rights of files": "chmod 000 top; chmod +x app/main.py; chmod -x run.sh",
    "rights of folders": "chmod 000 app/deep; chmod 1777 app; chmod 500 .",
    "a closed folder with something in it": "mkdir closed; echo x > closed/x; chmod 000 closed",
    "a file where a folder was": "rm -r app; echo x > app",
    "a folder where a file was": "rm top; mkdir -p top/below; echo x > top/below/x",
    "a link out of the tree where a folder was": "mv app elsewhere; ln -s /etc app",
    "a link where a file was": "rm top; ln -s /etc/hostname top",
    "a changed link": "ln -sfn /etc/hostname link",
    "a hard link to the outside": "ln top ../hard; echo x >> top",
    "a repository of its own": "git init -q nested; echo x > nested/x",
    "a repository in a folder of the commit": "git init -q app",
    "an index that hides changes": (
        "git update-index --skip-worktree top; git update-index --assume-unchanged app/main.py;"
        "echo x > top; echo x > app/main.py"
    ),
    "hooks and settings": (
        "mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch /tmp/no\\n' > .git/hooks/post-checkout;"
        "chmod +x .git/hooks/post-checkout;"
        "git config core.worktree /tmp; git config core.bare true"
    ),
    "settings that exclude files": "echo x > kept; echo kept > .git/info/exclude",
    "a filter for all files": (
        "git config filter.x.smudge 'echo bad'; echo '* filter=x' > .git/info/attributes"
    ),
    "a commit": "git checkout -q -b other; git rm -q top; git commit -qm x",
    "a lock that a killed git left": "touch .git/index.lock",
    "no .git": "rm -rf .git",
    "a .git that is a link": "rm -rf .git; ln -s /etc .git",
    "a pipe": "mkfifo pipe",
    "strange names": "touch -- '-rf' 'a b' \"$(printf 'line\\nbreak')\" \"$(printf '\\377')\"",
    "everything gone": "rm -rf app link run.sh top .git .gitignore",
}


@pytest.mark.parametrize("abuse", ABUSES.values(), ids=ABUSES.keys())
@pytest.mark.parametrize("to", ["same commit", "other commit"])
async def test_whatever_was_done_to_it_the_next_user_gets_the_commit(
    bench: Bench, abuse: str, to: str
) -> None:
    await bench.tree.checkout(bench.first)
    commit = bench.first if to == "same commit" else bench.second
    shell(bench.tree.path, abuse)

    await bench.tree.checkout(commit)

    assert content(bench.tree.path) == bench.expected(commit)
    assert shell(bench.tree.path, "git status --porcelain --ignored") == ""
    assert shell(bench.tree.path, "git rev-parse HEAD").strip() == commit


async def test_a_tree_that_is_itself_a_link_now_is_made_anew(bench: Bench, tmp_path: Path) -> None:
    await bench.tree.checkout(bench.first)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    bench.tree.path.rename(tmp_path / "moved")
    bench.tree.path.symlink_to(victim)

    await bench.tree.checkout(bench.second)

    assert content(bench.tree.path) == bench.expected(bench.second)
    assert (victim / "file").read_text() == "mine"


async def test_a_socket_left_in_the_tree_is_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.tree.checkout(bench.first)
    monkeypatch.chdir(bench.tree.path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")

    await bench.tree.checkout(bench.first)

    assert not (bench.tree.path / "sock").exists()


async def test_the_files_that_did_not_change_are_not_written_again(bench: Bench) -> None:
    await bench.tree.checkout(bench.first)
    before = (bench.tree.path / "run.sh").stat()

    await bench.tree.checkout(bench.second)

    after = (bench.tree.path / "run.sh").stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


async def test_an_untouched_tree_is_handed_out_again_without_a_process(bench: Bench) -> None:
    await bench.tree.checkout(bench.first)
    shell(bench.tree.path, "cat top app/main.py; ls -R")
    bench.repository.mirror.env["PATH"] = "/nothing"

    await bench.tree.checkout(bench.first)

    (bench.tree.path / "top").touch()
    with pytest.raises(GitError, match="there is no git"):
        await bench.tree.checkout(bench.first)


async def test_git_in_the_tree_knows_the_commit_and_its_history(bench: Bench) -> None:
    await bench.tree.checkout(bench.second)

    assert shell(bench.tree.path, "git log --format=%H").split()[:2] == [bench.second, bench.first]
    assert shell(bench.tree.path, "git diff --name-only HEAD~1").split() == [
        "app/main.py",
        "new/file",
        "top",
    ]
    assert shell(bench.tree.path, "git remote get-url origin").strip() == bench.remote.remote


async def test_nothing_that_git_does_in_the_tree_reaches_the_mirror(bench: Bench) -> None:
    await bench.tree.checkout(bench.second)
    mirror = bench.repository.mirror.folder
    before = content(mirror)

    shell(
        bench.tree.path,
        "git checkout -q -b mine; echo x > top; git add top; git commit -qm mine; git tag t;"
        "git repack -adq; git gc -q --prune=now; git prune; git branch -f main HEAD",
    )

    assert content(mirror) == before
    assert shell(bench.tree.path, "git log -1 --format='%an <%ae>'").strip() == (
        "piped <pipecd.dev@gmail.com>"
    )


async def test_a_repository_with_sha256_objects_has_trees_too(
    git_remote: Remotes, tmp_path: Path
) -> None:
    remote = git_remote("old")
    remote.path.joinpath(".git").rename(tmp_path / "unused")
    remote.git("init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    commit = remote.commit({"a": "1"})
    async with Repository(
        id="r", remote=remote.remote, branch="main", folder=tmp_path / "mirror"
    ) as repository:
        await repository.open()
        tree = Worktree(tmp_path / "tree", repository, GitIdentity(name='A "B"\\', email="x"))

        await tree.checkout(commit)

        assert shell(tree.path, "git status --porcelain; git rev-parse HEAD").strip() == commit
        assert shell(tree.path, "git config user.name").strip() == 'A "B"\\'
