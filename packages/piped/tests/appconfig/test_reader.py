# SPDX-License-Identifier: Apache-2.0
"""Application files at a commit: a configuration, or the sentence that its author is shown."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_model.config import ApplicationConfig, ConfigFaultsError
from pipecd_model.errors import PipecdError, SourceError
from pipecd_piped.appconfig import ApplicationFiles
from pipecd_piped.git import GitError, Repository
from pipecd_test_support.git_remote import Remotes
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository

FILE = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  name: {}\n"


def git_path(path: str, filename: str = "app.pipecd.yaml") -> ApplicationGitPath:
    return ApplicationGitPath(
        repo=ApplicationGitRepository(id="repo"), path=path, config_filename=filename
    )


@pytest.fixture
async def repository(git_remote: Remotes, tmp_path: Path) -> AsyncIterator[Repository]:
    async with Repository(
        id="repo", remote=git_remote().remote, branch="main", folder=tmp_path / "mirror"
    ) as made:
        yield made


async def test_a_file_is_the_configuration_of_its_commit(
    repository: Repository, git_remote: Remotes
) -> None:
    remote = git_remote()
    first = remote.commit({"a/app.pipecd.yaml": FILE.format("one")})
    second = remote.commit({"a/app.pipecd.yaml": FILE.format("two")})
    files = ApplicationFiles()
    await repository.open()

    assert (await files.load(repository, first, git_path("a"))).name == "one"
    assert (await files.load(repository, second, git_path("a"))).name == "two"


async def test_the_same_content_is_parsed_once(repository: Repository, git_remote: Remotes) -> None:
    remote = git_remote()
    first = remote.commit({"a/app.pipecd.yaml": FILE.format("one")})
    second = remote.commit({"b": "1"})
    files = ApplicationFiles()
    await repository.open()

    one = await files.load(repository, first, git_path("a"))

    assert await files.load(repository, second, git_path("a")) is one


async def test_only_so_many_files_are_remembered(
    repository: Repository, git_remote: Remotes
) -> None:
    names = [f"a{number}" for number in range(10)]
    commit = git_remote().commit({f"{name}/app.pipecd.yaml": FILE.format(name) for name in names})
    files = ApplicationFiles(keep=3)
    await repository.open()

    for _ in range(2):
        loaded = await files.load_all(repository, commit, [git_path(name) for name in names])
        assert [each.name for each in loaded if isinstance(each, ApplicationConfig)] == names
    assert len(files._parsed) == 3


async def test_what_is_wrong_with_one_leaves_the_others_alone(
    repository: Repository, git_remote: Remotes
) -> None:
    remote = git_remote()
    for name in ("outside", "linked"):
        (remote.path / name).mkdir()
    (remote.path / "outside" / "app.pipecd.yaml").symlink_to("/etc/passwd")
    (remote.path / "linked" / "app.pipecd.yaml").symlink_to("../good/app.pipecd.yaml")
    commit = remote.commit(
        {
            "good/app.pipecd.yaml": FILE.format("good"),
            "broken/app.pipecd.yaml": "kind: [",
            "binary/app.pipecd.yaml": b"\xff\0\xfe",
            "empty/app.pipecd.yaml": "",
            "folder/app.pipecd.yaml/x": "1",
        }
    )
    await repository.open()
    asked = [
        "good",
        "broken",
        "binary",
        "empty",
        "folder",
        "missing",
        "outside",
        "linked",
        "../good",
        "good",
    ]

    found = await ApplicationFiles().load_all(
        repository, commit, [git_path(path) for path in asked]
    )

    assert [type(each) for each in found] == [
        ApplicationConfig,
        ConfigFaultsError,
        ConfigFaultsError,
        ConfigFaultsError,
        SourceError,
        SourceError,
        GitError,
        ApplicationConfig,
        SourceError,
        ApplicationConfig,
    ]
    said = dict(zip(asked, map(str, found), strict=True))
    assert "has no application file 'folder/app.pipecd.yaml'" in said["folder"]
    assert "has no folder 'missing'" in said["missing"]
    assert "leads out of the repository" in said["outside"]
    assert "is not inside the repository" in said["../good"]
    assert said["broken"].startswith("broken/app.pipecd.yaml:")


async def test_one_that_cannot_be_used_is_raised_when_it_is_asked_for_alone(
    repository: Repository, git_remote: Remotes
) -> None:
    commit = git_remote().commit({"a": "1"})
    await repository.open()

    with pytest.raises(PipecdError, match="has no folder 'x'"):
        await ApplicationFiles().load(repository, commit, git_path("x"))


async def test_a_key_that_nobody_knows_is_told_to_the_operator_once(
    repository: Repository, git_remote: Remotes, caplog: pytest.LogCaptureFixture
) -> None:
    remote = git_remote()
    first = remote.commit({"a/app.pipecd.yaml": FILE.format("one") + "  pipline: {}\n"})
    second = remote.commit({"b": "1"})
    files = ApplicationFiles()
    await repository.open()

    for commit in (first, second):
        assert (await files.load(repository, commit, git_path("a"))).name == "one"

    lines = [each for each in caplog.records if each.message == "application.file_odd"]
    told = [vars(each)["fields"]["warning"] for each in lines]
    unknown = [each for each in told if "unknown key" in each]
    assert len(unknown) == 1
    assert unknown[0].startswith("a/app.pipecd.yaml:5:3: spec.pipline: unknown key")


async def test_older_kinds_follow_the_names_of_plugins(
    repository: Repository, git_remote: Remotes
) -> None:
    text = "apiVersion: pipecd.dev/v1beta1\nkind: TerraformApp\nspec: {input: {workspace: dev}}\n"
    commit = git_remote().commit({"a/app.pipecd.yaml": text})
    names: dict[str, str] = {}
    files = ApplicationFiles(names=lambda: names)
    await repository.open()

    before = await files.load(repository, commit, git_path("a"))
    names["terraform"] = "infra"  # its plugin has become ready, and has another name
    after = await files.load(repository, commit, git_path("a"))

    assert before.plugins == {"terraform": {"workspace": "dev"}}
    assert after.plugins == {"infra": {"workspace": "dev"}}
