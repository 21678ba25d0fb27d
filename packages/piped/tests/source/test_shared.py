# SPDX-License-Identifier: Apache-2.0
"""Readers of one commit share a worktree, for some time, and are in nobody's way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pipecd_model.errors import SourceError
from pipecd_piped.git import NoCommitError, Repository
from pipecd_piped.source import Preparation, SharedSources, SourceProvider
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
async def site(git_remote: Callable[..., GitRemote], tmp_path: Path) -> AsyncIterator[Site]:
    remote = git_remote()
    folder = tmp_path / "data" / "mirrors" / "repo"
    async with AsyncExitStack() as opened:
        repository = Repository(id="repo", remote=remote.remote, branch="main", folder=folder)
        sources = SourceProvider(
            tmp_path / "data",
            {"repo": repository},
            preparation=Preparation(),
            kept_worktrees=2,
        )
        made = Site(remote, repository, sources)
        await opened.enter_async_context(repository)
        await opened.enter_async_context(sources)
        yield made


def keep_long(site: Site) -> SharedSources:
    return SharedSources(site.sources, idle_seconds=LONG, longest_seconds=LONG)


async def test_readers_at_once_and_one_after_the_other_share_a_worktree(site: Site) -> None:
    shared = keep_long(site)
    async with shared.open(WEB, site.commit) as web, shared.open(SHOP, site.commit) as shop:
        folder = Path(web.application_directory)
        assert folder.name == "web"
        assert Path(shop.application_directory) == folder.parent / "shop"
        assert web.application_config_filename == "app.pipecd.yaml"
        assert json.loads(web.application_config)["spec"]["name"] == "web"

    assert await site.read_folder(shared, WEB) == folder
    assert site.sources.cleaning == 0


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
    async with shared.open(WEB, site.commit) as first:
        async with shared.open(WEB, site.commit) as second:
            assert first.application_directory != second.application_directory
        folder = Path(first.application_directory)
        (folder / "left").write_text("by a plugin")
    await site.wait_at_rest()

    assert not (folder / "left").exists(), "the last reader of a retired one gives it back"


async def test_who_waits_for_a_worktree_gets_one_that_is_kept_for_readers(site: Site) -> None:
    shared = keep_long(site)
    folder = await site.read_folder(shared, WEB)
    async with (
        asyncio.timeout(LIMIT),
        site.sources.worktree("repo", site.commit),
        site.sources.worktree("repo", site.commit) as tree,
    ):
        assert folder == tree.path / "web"


async def test_only_a_few_worktrees_of_a_repository_are_kept_without_a_reader(site: Site) -> None:
    shared = keep_long(site)
    first = await site.read_folder(shared, WEB)
    for _ in range(3):
        commit = await site.push()
        async with shared.open(WEB, commit):
            pass
    (first / "left").write_text("by a plugin")
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
    assert site.sources.cleaning == 0
