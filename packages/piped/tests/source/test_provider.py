# SPDX-License-Identifier: Apache-2.0
"""Leasing trees: one user each, used again, few kept, and applications found in them."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.errors import SourceError
from pipecd_piped.git import NoCommitError, Repository
from pipecd_piped.source import SourceProvider, source_of, worktree_pool
from pipecd_test_support.git_remote import GitRemote, Remotes
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository

CONFIG = (
    b"apiVersion: pipecd.dev/v1beta1\r\nkind: Application\nspec: {name: web}\n# \xc3\xb6 \xff\n"
)


def application(path: str = "apps/web", filename: str = "app.pipecd.yaml") -> ApplicationGitPath:
    return ApplicationGitPath(
        repo=ApplicationGitRepository(id="repo"), path=path, config_filename=filename
    )


class Bench:
    """A remote, its mirror, and a pool."""

    def __init__(self, remote: GitRemote, data_dir: Path) -> None:
        self.remote = remote
        self.data_dir = data_dir
        self.commit = remote.commit({"apps/web/app.pipecd.yaml": CONFIG, "base/x": "1"})
        self.repository = Repository(
            id="repo", remote=remote.remote, branch="main", folder=data_dir / "mirrors" / "repo"
        )
        self.sources = SourceProvider(data_dir, {"repo": self.repository}, kept_worktrees=2)

    @property
    def trees(self) -> list[Path]:
        return sorted((self.data_dir / "trees").glob("*/*"))

    async def at_rest(self) -> None:
        """Wait until every returned tree is put away."""
        async with asyncio.timeout(30):
            while self.sources.cleaning:  # noqa: ASYNC110 - threads and processes do it
                await asyncio.sleep(0.001)

    async def push(self, files: dict[str, Any]) -> str:
        commit: str = self.remote.commit(files)
        await self.repository.fetch()
        return commit


@pytest.fixture
async def bench(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(git_remote(), tmp_path / "data")
    await made.repository.open()
    async with made.sources:
        yield made
    await made.repository.close()


async def test_two_users_at_once_have_a_tree_each(bench: Bench) -> None:
    async with (
        bench.sources.worktree("repo", bench.commit) as one,
        bench.sources.worktree("repo", bench.commit) as other,
    ):
        (one.path / "base" / "x").write_text("mine")

        assert one.path != other.path
        assert (other.path / "base" / "x").read_text() == "1"


async def test_a_returned_tree_is_used_again_clean(bench: Bench) -> None:
    async with bench.sources.worktree("repo", bench.commit) as tree:
        path = tree.path
        (path / "left").write_text("secret")
    await bench.at_rest()
    assert not (path / "left").exists()

    async with bench.sources.worktree("repo", bench.commit) as tree:
        assert tree.path == path


async def test_the_tree_that_stands_at_the_commit_already_is_preferred(bench: Bench) -> None:
    newer = await bench.push({"base/x": "2"})
    async with (
        bench.sources.worktree("repo", bench.commit) as one,
        bench.sources.worktree("repo", newer) as other,
    ):
        paths = {bench.commit: one.path, newer: other.path}

    for commit in (newer, bench.commit, newer):
        await bench.at_rest()
        async with bench.sources.worktree("repo", commit) as tree:
            assert tree.path == paths[commit]


async def test_a_tree_that_is_being_cleaned_is_waited_for(bench: Bench) -> None:
    for _ in range(5):
        async with bench.sources.worktree("repo", bench.commit) as tree:
            (tree.path / "left").write_text("x")

    assert len(bench.trees) == 1


async def test_only_some_trees_are_kept_while_nobody_uses_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktree_pool, "EXCESS_SECONDS", 0.0)
    async with AsyncExitStack() as used:
        for _ in range(5):
            await used.enter_async_context(bench.sources.worktree("repo", bench.commit))
        assert len(bench.trees) == 5

    await bench.at_rest()
    assert len(bench.trees) == 2


async def test_many_users_at_once_all_get_their_commit(bench: Bench) -> None:
    newer = await bench.push({"base/x": "2"})

    async def use(commit: str, expected: str) -> None:
        async with bench.sources.worktree("repo", commit) as tree:
            assert (tree.path / "base" / "x").read_text() == expected
            (tree.path / "base" / "x").write_text("spoiled")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(12):
            tasks.create_task(use(bench.commit, "1"))
            tasks.create_task(use(newer, "2"))


async def test_a_user_that_is_cancelled_gives_its_tree_back(bench: Bench) -> None:
    for pauses in range(12):
        async with asyncio.TaskGroup() as tasks:
            user = tasks.create_task(use_for_ever(bench))
            for _ in range(pauses):
                await asyncio.sleep(0.002)
            user.cancel()
        await bench.at_rest()

    async with bench.sources.worktree("repo", bench.commit) as tree:
        assert (tree.path / "base" / "x").read_text() == "1"
    assert len(bench.trees) == 1


async def use_for_ever(bench: Bench) -> None:
    async with bench.sources.worktree("repo", bench.commit) as tree:
        (tree.path / "base" / "x").write_text("spoiled")
        await asyncio.Event().wait()


async def test_the_end_does_not_wait_for_trees_that_are_being_cleaned(bench: Bench) -> None:
    sources = SourceProvider(bench.data_dir / "more", {"repo": bench.repository})
    async with sources:
        async with sources.worktree("repo", bench.commit) as tree:
            (tree.path / "left").write_text("x")
        assert sources.cleaning == 1

    assert sources.cleaning == 0


async def test_a_tree_that_cannot_be_cleaned_is_not_used_again(bench: Bench) -> None:
    async with bench.sources.worktree("repo", bench.commit) as tree:
        path = tree.path
        (path / "left").write_text("x")
        await bench.repository.close()
        bench.repository.mirror.folder.rename(bench.data_dir / "gone")
    await bench.at_rest()

    assert not path.exists()


async def test_what_an_earlier_piped_left_is_deleted_at_the_start(bench: Bench) -> None:
    leftover = bench.data_dir / "trees" / "repo" / "7" / "work"
    leftover.mkdir(parents=True)
    (leftover / "opened secret").write_text("x")
    leftover.chmod(0o000)
    (bench.data_dir / "trees" / "repo" / "link").symlink_to(bench.remote.path)

    async with SourceProvider(bench.data_dir, {}):
        assert not list((bench.data_dir / "trees").glob("*/*"))
    assert bench.remote.path.exists()


@pytest.fixture
def script() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Scripts that work in a folder until they are ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["sh", "-c", "echo; read x"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.read(1)
        return process

    yield start
    for process in started:
        process.communicate()


async def test_a_tree_that_a_script_still_works_in_is_left_to_it(
    bench: Bench, script: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    """A piped that stops leaves the script; its tree must not be pulled from under it."""
    async with bench.sources.worktree("repo", bench.commit) as tree:
        path = tree.path
        (path / "mine").write_text("x")
        running = script(path / "apps" / "web")
    await bench.at_rest()

    async with bench.sources.worktree("repo", bench.commit) as tree:
        assert tree.path != path
    await bench.at_rest()
    assert (path / "mine").read_text() == "x"

    running.communicate()
    async with bench.sources.worktree("repo", bench.commit):
        pass
    await bench.at_rest()
    assert not path.exists()


async def test_a_restarted_piped_leaves_a_running_script_its_tree(
    bench: Bench, script: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    async with bench.sources.worktree("repo", bench.commit) as tree:
        path = tree.path
        running = script(path)
    await bench.at_rest()

    async with SourceProvider(bench.data_dir, {"repo": bench.repository}) as restarted:
        async with restarted.worktree("repo", bench.commit) as tree:
            assert tree.path != path
        assert (path / "base" / "x").read_text() == "1"

    running.communicate()
    async with SourceProvider(bench.data_dir, {}):
        assert not path.exists()


async def test_a_commit_that_nobody_has_is_told(bench: Bench) -> None:
    with pytest.raises(NoCommitError, match="there is no commit 1111111"):
        async with bench.sources.worktree("repo", "1" * 40):
            pass


async def test_a_repository_that_is_not_configured_is_told(bench: Bench) -> None:
    with pytest.raises(SourceError, match="there is no repository 'other' in the piped config"):
        async with bench.sources.worktree("other", bench.commit):
            pass


async def test_a_commit_that_a_forced_push_took_off_the_branch_still_has_a_tree(
    bench: Bench,
) -> None:
    """It is what runs: a rollback needs it."""
    dropped = await bench.push({"base/x": "dropped"})
    bench.remote.git("reset", "--quiet", "--hard", bench.commit)
    bench.remote.git("reflog", "expire", "--expire=now", "--all")
    bench.remote.git("gc", "--quiet", "--prune=now")
    await bench.push({"base/x": "3"})

    async with bench.sources.worktree("repo", dropped) as tree:
        assert (tree.path / "base" / "x").read_text() == "dropped"


async def test_a_broken_mirror_is_healed_on_the_way_to_a_tree(bench: Bench) -> None:
    await bench.repository.close()
    for pack in (bench.repository.mirror.folder / "objects").rglob("*.pack"):
        pack.unlink()

    async with bench.sources.worktree("repo", bench.commit) as tree:
        assert (tree.path / "base" / "x").read_text() == "1"


async def test_a_source_describes_the_application_in_its_tree(bench: Bench) -> None:
    async with bench.sources.open(application(), bench.commit) as source:
        root = Path(source.application_directory).parents[1]
        assert (root / "base" / "x").read_text() == "1"
        assert source.application_config == CONFIG
        assert source.application_config_filename == "app.pipecd.yaml"
        assert source.commit_hash == bench.commit
        assert source.shared_config_directory == f"{root}/.pipe"
        assert Path(source.application_directory).is_absolute()


async def test_the_application_file_may_have_had_another_name(bench: Bench) -> None:
    old = await bench.push({"apps/web/.pipe.yaml": "old", "apps/web/was.pipecd.yaml": "was"})
    async with bench.sources.worktree("repo", old) as tree:
        was = await source_of(tree, application(), "was.pipecd.yaml")
        unnamed = await source_of(tree, application(filename=""))

    assert (was.application_config_filename, was.application_config) == ("was.pipecd.yaml", b"was")
    assert (unnamed.application_config_filename, unnamed.application_config) == (
        ".pipe.yaml",
        b"old",
    )


async def test_an_application_in_the_root_of_the_repository_is_found(bench: Bench) -> None:
    commit = await bench.push({"app.pipecd.yaml": "root"})

    for path in ("./", "."):
        async with bench.sources.worktree("repo", commit) as tree:
            source = await source_of(tree, application(path))
            assert source.application_config == b"root"
            assert Path(source.application_directory) == tree.path


@pytest.mark.parametrize(
    ("path", "filename", "sentence"),
    [
        ("apps/api", "app.pipecd.yaml", "has no folder 'apps/api'"),
        ("apps/web/app.pipecd.yaml", "x", "has no folder 'apps/web/app.pipecd.yaml'"),
        ("apps/web", "other.yaml", "has no application file 'apps/web/other.yaml'"),
        ("apps", "web", "has no application file 'apps/web'"),
        ("../outside", "app.pipecd.yaml", "is not inside the repository"),
        ("apps/../../outside", "app.pipecd.yaml", "is not inside the repository"),
        ("apps/web", "../../../etc/passwd", "is not inside the repository"),
        ("/etc", "passwd", "is not inside the repository"),
    ],
)
async def test_what_the_commit_lacks_is_told(
    bench: Bench, path: str, filename: str, sentence: str
) -> None:
    async with bench.sources.worktree("repo", bench.commit) as tree:
        with pytest.raises(SourceError, match=sentence):
            await source_of(tree, application(path, filename))


async def test_links_lead_anywhere_in_the_repository_and_nowhere_else(bench: Bench) -> None:
    (bench.remote.path / "inside").symlink_to("apps/web")
    (bench.remote.path / "outside").symlink_to("/etc")
    (bench.remote.path / "up").symlink_to("../..")
    folder = bench.remote.path / "linked"
    folder.mkdir()
    (folder / "app.pipecd.yaml").symlink_to("/etc/passwd")
    commit = await bench.push({"y": "1"})

    async with bench.sources.worktree("repo", commit) as tree:
        source = await source_of(tree, application("inside"))
        assert source.application_config == CONFIG
        assert Path(source.application_directory) == tree.path / "apps" / "web"
        for path in ("outside", "up", "linked"):
            with pytest.raises(SourceError, match=r"has no folder|leads out of the repository"):
                await source_of(tree, application(path))


async def test_a_tree_holds_what_its_commit_holds_whatever_stands_in_for_it(bench: Bench) -> None:
    """A replace ref in the mirror: a git that honours it writes another commit's files."""
    bench.remote.git("switch", "--quiet", "--create", "evil")
    evil = bench.remote.commit({"base/x": "evil"})
    mirror = f"--git-dir={bench.repository.mirror.folder}"
    bench.remote.git(mirror, "fetch", "--quiet", bench.remote.remote, "evil")
    bench.remote.git(mirror, "update-ref", f"refs/replace/{bench.commit}", evil)

    async with bench.sources.worktree("repo", bench.commit) as tree:
        assert (tree.path / "base" / "x").read_text() == "1"


@pytest.mark.parametrize("name", ["main", "HEAD", "--index-output=/tmp/x", "refs/heads/main"])
async def test_a_tree_is_asked_for_by_a_whole_hash(bench: Bench, name: str) -> None:
    with pytest.raises(NoCommitError):
        async with bench.sources.worktree("repo", name):
            pass
