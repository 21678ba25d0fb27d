# SPDX-License-Identifier: Apache-2.0
"""Readers of one commit use a worktree one after the other, and are in nobody's way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pipecd_model.errors import PluginError, SourceError
from pipecd_piped.git import NoCommitError, Repository
from pipecd_piped.source import Preparation, SharedSources, SourceProvider
from pipecd_piped.source.shared import MOST_IDLE
from pipecd_test_support.git_remote import GitRemote
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository

LIMIT = 30.0
LONG = 3600.0
"""Seconds that no test lasts."""


def place_of(path: str) -> ApplicationGitPath:
    return ApplicationGitPath(
        repo=ApplicationGitRepository(id="repo"), path=path, config_filename="app.pipecd.yaml"
    )


WEB, SHOP, ATTACHED = place_of("web"), place_of("shop"), place_of("attached")


def application(**more: object) -> str:
    spec = {"name": "web", **more}
    return json.dumps({"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec})


class Site:
    """A repository with three applications, and sources of it."""

    def __init__(self, remote: GitRemote, repository: Repository, sources: SourceProvider) -> None:
        self.remote = remote
        self.repository = repository
        self.sources = sources
        self.commit = remote.commit(
            {
                "web/app.pipecd.yaml": application(),
                "shop/app.pipecd.yaml": application(),
                "attached/app.pipecd.yaml": application(
                    attachment={"sources": {"inner": "inner.txt"}, "targets": ["target.txt"]}
                ),
                "attached/inner.txt": "inside",
                "attached/target.txt": "{{ .attachment.inner }}",
            }
        )

    async def push(self) -> str:
        commit = self.remote.commit({"note": "next"})
        await self.repository.fetch()
        return commit

    async def read_folder(self, shared: SharedSources, place: ApplicationGitPath) -> Path:
        async with shared.open(place, self.commit) as source:
            return Path(source.application_directory)

    async def wait_at_rest(self) -> None:
        async with asyncio.timeout(LIMIT):
            while self.sources.cleaning:  # noqa: ASYNC110 - threads and processes do it
                await asyncio.sleep(0.001)


@pytest.fixture
async def site(
    request: pytest.FixtureRequest, git_remote: Callable[..., GitRemote], tmp_path: Path
) -> AsyncIterator[Site]:
    """Of a pool with two worktrees, unless the test says how many."""
    remote = git_remote()
    folder = tmp_path / "data" / "mirrors" / "repo"
    async with AsyncExitStack() as opened:
        repository = Repository(id="repo", remote=remote.remote, branch="main", folder=folder)
        sources = SourceProvider(
            tmp_path / "data",
            {"repo": repository},
            preparation=Preparation(),
            kept_worktrees=getattr(request, "param", 2),
        )
        made = Site(remote, repository, sources)
        await opened.enter_async_context(repository)
        await opened.enter_async_context(sources)
        yield made


def keep_long(site: Site) -> SharedSources:
    return SharedSources(site.sources, idle_seconds=LONG, longest_seconds=LONG)


async def test_readers_that_follow_each_other_share_a_worktree(site: Site) -> None:
    shared = keep_long(site)
    async with shared.open(WEB, site.commit) as web:
        folder = Path(web.application_directory)
        assert folder.name == "web"
        assert web.application_config_filename == "app.pipecd.yaml"
        assert json.loads(web.application_config)["spec"]["name"] == "web"

    assert await site.read_folder(shared, SHOP) == folder.parent / "shop"
    assert await site.read_folder(shared, WEB) == folder
    assert site.sources.cleaning == 0


async def test_readers_at_once_have_worktrees_of_their_own(site: Site) -> None:
    shared = keep_long(site)
    folders = set()
    for _ in range(2):
        async with shared.open(WEB, site.commit) as web, shared.open(SHOP, site.commit) as shop:
            roots = {Path(each.application_directory).parent for each in (web, shop)}
            assert len(roots) == 2
            folders |= roots
    assert len(folders) == 2, "both were used again"


async def test_what_a_reader_does_with_its_source_is_its_own(site: Site) -> None:
    shared = keep_long(site)
    async with shared.open(WEB, site.commit) as source:
        source.application_directory = "elsewhere"

    assert await site.read_folder(shared, WEB) != Path("elsewhere")


async def test_another_commit_has_another_worktree(site: Site) -> None:
    shared = keep_long(site)
    newer = await site.push()
    async with shared.open(WEB, site.commit) as one, shared.open(WEB, newer) as other:
        assert one.application_directory != other.application_directory
        assert (one.commit_hash, other.commit_hash) == (site.commit, newer)


async def test_whoever_changes_files_gets_a_worktree_that_nobody_reads(site: Site) -> None:
    shared = keep_long(site)
    async with (
        shared.open(WEB, site.commit) as read,
        site.sources.open(WEB, site.commit) as written,
    ):
        assert read.application_directory != written.application_directory


async def test_an_application_whose_files_are_rendered_has_a_worktree_of_its_own(
    site: Site,
) -> None:
    shared = keep_long(site)
    for _ in range(2):
        async with (
            shared.open(WEB, site.commit) as web,
            shared.open(ATTACHED, site.commit) as attached,
        ):
            root = Path(web.application_directory).parent
            own = Path(attached.application_directory)
            assert own != root / "attached"
            assert (own / "target.txt").read_text() == "inside"
            assert (root / "attached" / "target.txt").read_text() == "{{ .attachment.inner }}"


async def test_a_worktree_is_given_back_and_cleaned_when_nobody_has_read_it_for_some_time(
    site: Site,
) -> None:
    shared = SharedSources(site.sources, idle_seconds=0, longest_seconds=LONG)
    folder = await site.read_folder(shared, WEB)
    (folder / "left").write_text("by a plugin")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await site.wait_at_rest()

    assert not (folder / "left").exists()


async def test_readers_that_follow_each_other_without_end_get_another_one_in_time(
    site: Site,
) -> None:
    shared = SharedSources(site.sources, idle_seconds=LONG, longest_seconds=-1)
    folder = await site.read_folder(shared, WEB)
    (folder / "left").write_text("by a plugin")
    await site.wait_at_rest()

    assert not (folder / "left").exists()


async def test_an_idle_worktree_that_is_old_is_given_back_by_the_next_reader(site: Site) -> None:
    shared = SharedSources(site.sources, idle_seconds=LONG, longest_seconds=0.2)
    async with asyncio.timeout(LIMIT):
        folder = await site.read_folder(shared, WEB)
        (folder / "left").write_text("by a plugin")
        while (folder / "left").exists():
            await site.read_folder(shared, WEB)
            await site.wait_at_rest()


async def test_who_waits_for_a_worktree_gets_one_that_is_kept_for_readers(site: Site) -> None:
    shared = keep_long(site)
    folder = await site.read_folder(shared, WEB)
    async with (
        asyncio.timeout(LIMIT),
        site.sources.worktree("repo", site.commit),
        site.sources.worktree("repo", site.commit) as tree,
    ):
        assert folder == tree.path / "web"


async def test_who_begins_to_wait_while_a_reader_reads_gets_its_worktree_at_the_end(
    site: Site,
) -> None:
    shared = keep_long(site)
    async with asyncio.timeout(LIMIT), site.sources.worktree("repo", site.commit):
        async with shared.open(WEB, site.commit) as source:
            folder = Path(source.application_directory)
            waiting = asyncio.create_task(site.sources.take_worktree("repo", site.commit))
            while not site.sources.is_waited_for("repo"):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0)
        tree = await waiting
    assert folder == tree.path / "web"
    site.sources.give_back(tree)


@pytest.mark.parametrize("site", [2 * MOST_IDLE], indirect=True)
async def test_only_a_few_worktrees_of_a_repository_are_kept_without_a_reader(site: Site) -> None:
    shared = keep_long(site)
    commits = [await site.push() for _ in range(MOST_IDLE)]
    first = await site.read_folder(shared, WEB)
    for commit in commits[:-1]:
        async with shared.open(WEB, commit):
            pass
    assert site.sources.cleaning == 0
    assert await site.read_folder(shared, WEB) == first, "all of them are kept"

    (first / "left").write_text("by a plugin")
    for commit in commits:
        async with shared.open(WEB, commit):
            pass
    await site.wait_at_rest()
    assert not (first / "left").exists()


async def test_what_cannot_be_opened_is_told_each_time_and_keeps_no_worktree(site: Site) -> None:
    shared = keep_long(site)
    for _ in range(2):
        with pytest.raises(NoCommitError):
            async with shared.open(WEB, "f" * 40):
                pass
        with pytest.raises(SourceError, match="has no folder 'gone'"):
            async with shared.open(place_of("gone"), site.commit):
                pass
    async with shared.open(WEB, site.commit) as source:
        assert source.application_directory


async def test_a_reader_that_is_cancelled_leaves_the_others_their_worktree(site: Site) -> None:
    shared = keep_long(site)
    is_open = asyncio.Event()

    async def read_for_ever() -> None:
        async with shared.open(WEB, site.commit):
            is_open.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(read_for_ever())
        await is_open.wait()
        async with shared.open(SHOP, site.commit) as source:
            reader.cancel()
            await asyncio.wait([reader])
            assert (Path(source.application_directory) / "app.pipecd.yaml").exists()
    await site.wait_at_rest()


async def test_nobody_gets_the_worktree_of_a_reader_whose_tool_still_works_in_it(
    site: Site,
) -> None:
    """A plugin that does not answer in time may end its tool later, or never."""
    shared = keep_long(site)

    async def read_with_tool() -> None:
        async with shared.open(WEB, site.commit) as source:
            folder = source.application_directory
            tools.append(await asyncio.create_subprocess_exec("sleep", "300", cwd=folder))
            folders.append(folder)
            raise PluginError("no answer within a minute")

    tools: list[asyncio.subprocess.Process] = []
    folders: list[str] = []
    try:
        with pytest.raises(PluginError):
            await read_with_tool()
        for _ in range(3):
            async with shared.open(SHOP, site.commit) as source:
                assert Path(source.application_directory).parent != Path(folders[0]).parent
    finally:
        for tool in tools:
            tool.kill()
            await tool.wait()
        await site.wait_at_rest()
