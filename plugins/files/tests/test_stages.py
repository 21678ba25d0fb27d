# SPDX-License-Identifier: Apache-2.0
"""What a deployment leaves in the directories."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from pipecd_sdk import StageStatus
from pipecd_test_support.files_lab import FilesLab

FOUR = {"a": {"zone": "one"}, "b": {"zone": "one"}, "c": {"zone": "two"}, "d": {"zone": "two"}}


def releases(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "releases").iterdir() if path.is_dir())


async def test_a_sync_brings_every_directory_to_the_commit(make: FilesLab, tmp_path: Path) -> None:
    harness = make({"index.html": "hello", "deep/er/x.txt": "x"}, targets={"a": {}, "b": {}})

    result = await harness.run("FILES_SYNC")

    assert result.status is StageStatus.SUCCESS
    for name in ("a", "b"):
        assert make.deployed(tmp_path / name) == {"index.html": "hello", "deep/er/x.txt": "x"}
        assert (tmp_path / name / "current").readlink() == Path(
            "releases/20240102T120100-00000000-00000001"
        )


async def test_releases_stand_side_by_side_and_the_link_is_switched(
    make: FilesLab, tmp_path: Path
) -> None:
    await make({"index.html": "one"}).run("FILES_SYNC")
    first = (tmp_path / "a" / "current").resolve()
    await make({"index.html": "two"}, number=2).run("FILES_SYNC")

    assert make.deployed(tmp_path / "a") == {"index.html": "two"}
    assert (first / "index.html").read_text() == "one"


async def test_the_application_file_and_git_are_not_deployed(
    make: FilesLab, tmp_path: Path
) -> None:
    harness = make({"app.pipecd.yaml": "x", ".git": "gitdir: x", "sub/app.pipecd.yaml": "y"})

    await harness.run("FILES_SYNC")

    assert make.deployed(tmp_path / "a") == {"sub/app.pipecd.yaml": "y"}


async def test_a_folder_of_the_application_can_be_named_and_files_left_out(
    make: FilesLab, tmp_path: Path
) -> None:
    files = {"src/x": "x", "public/index.html": "y", "public/draft/z": "z", "public/a.map": "m"}
    options = {"source": "public", "exclude": ["draft", "**/*.map"], "into": "site/one"}

    await make(files, options=options).run("FILES_SYNC")

    assert make.deployed(tmp_path / "a" / "site" / "one") == {"index.html": "y"}


@pytest.mark.parametrize("block", [64 * 1024, 1024 * 1024])
async def test_files_of_about_a_block_arrive_whole(
    make: FilesLab, tmp_path: Path, block: int
) -> None:
    """They are read in pieces, and the digest that drift is compared with is made of the same."""
    folder = make.write(tmp_path / "commit", {})
    sizes = (0, 1, block - 1, block, block + 1, 2 * block)
    for size in sizes:
        (folder / f"{size}.bin").write_bytes(os.urandom(size))

    await make(folder).run("FILES_SYNC")

    [record] = (tmp_path / "a" / "releases").glob("*.json")
    files = json.loads(record.read_text())["files"]
    for size in sizes:
        data = (tmp_path / "a" / "current" / f"{size}.bin").read_bytes()
        assert data == (folder / f"{size}.bin").read_bytes()
        assert files[f"{size}.bin"][2:] == [size, hashlib.sha256(data).hexdigest()]


async def test_modes_links_and_odd_names_arrive(make: FilesLab, tmp_path: Path) -> None:
    folder = make.write(
        tmp_path / "commit", {"run.sh": "#!/bin/sh", "a\nb": "newline", "  ": "blank"}
    )
    (folder / "run.sh").chmod(0o700)
    (folder / "link").symlink_to("run.sh")
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to("../run.sh")
    (folder / os.fsdecode(b"\xff\xfe")).write_text("no unicode")
    old = os.umask(0o077)
    try:
        result = await make(folder).run("FILES_SYNC")
    finally:
        os.umask(old)

    current = tmp_path / "a" / "current"
    assert result.status is StageStatus.SUCCESS
    assert (current / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (current / "a\nb").stat().st_mode & 0o777 == 0o644
    assert (current / "sub").stat().st_mode & 0o777 == 0o755
    assert (current / "link").readlink() == Path("run.sh")
    assert (current / "sub" / "up").read_text() == "#!/bin/sh"
    assert (current / os.fsdecode(b"\xff\xfe")).read_text() == "no unicode"


@pytest.mark.parametrize(
    ("link", "to"),
    [
        ("out", "../secret"),
        ("out", "/etc/passwd"),
        ("deep/out", "../../secret"),
        ("deep/out", "root/../secret"),
    ],
)
async def test_a_link_that_leads_out_of_the_folder_is_refused(
    make: FilesLab, tmp_path: Path, link: str, to: str
) -> None:
    """The last one looks as if it stayed inside; it does not, `root` is a link itself."""
    folder = make.write(tmp_path / "commit", {"deep/x": "x"})
    (folder / "deep" / "root").symlink_to("..")
    (folder / link).symlink_to(to)

    result = await make(folder).run("FILES_SYNC")

    assert result.status is StageStatus.FAILURE
    assert f"the link {link!r} leads out of the folder" in result.reason
    assert not (tmp_path / "a" / "current").exists()
    assert releases(tmp_path / "a") == []


async def test_a_pipe_in_the_folder_is_refused_and_not_waited_for(
    make: FilesLab, tmp_path: Path
) -> None:
    folder = make.write(tmp_path / "commit", {"x": "x"})
    os.mkfifo(folder / "pipe")

    async with asyncio.timeout(30):
        result = await make(folder).run("FILES_SYNC")

    assert result.reason == "'pipe' is neither file, folder nor link"


@pytest.mark.parametrize("source", ["../other", "/etc", "missing", "link"])
async def test_a_source_that_leaves_the_application_is_refused(
    make: FilesLab, tmp_path: Path, source: str
) -> None:
    folder = make.write(tmp_path / "commit", {"x": "x"})
    (folder / "link").symlink_to("..")

    result = await make(folder, options={"source": source}).run("FILES_SYNC")

    assert result.status is StageStatus.FAILURE
    assert repr(source) in result.reason


async def test_only_the_last_releases_are_kept(make: FilesLab, tmp_path: Path) -> None:
    for number in range(1, 7):
        harness = make({"n": str(number)}, number=number, config={"keep": 3})
        await harness.run("FILES_SYNC")

    kept = releases(tmp_path / "a")
    assert [name[-8:] for name in kept] == ["00000004", "00000005", "00000006"]
    assert {path.name for path in (tmp_path / "a" / "releases").glob("*.json")} == {
        f"{name}.json" for name in kept
    }


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"targets": ["c", "a"]}, "ac"),
        ({"labels": {"zone": "two"}}, "cd"),
        ({"percentage": "50%"}, "ab"),
        ({"percentage": 1}, "a"),
        ({"labels": {"zone": "two"}, "percentage": 50}, "c"),
    ],
)
async def test_a_canary_brings_the_chosen_targets_and_primary_the_rest(
    make: FilesLab, tmp_path: Path, options: dict[str, object], first: str
) -> None:
    await make({"v": "1"}, targets=FOUR).run("FILES_SYNC")
    harness = make({"v": "2"}, number=2, targets=FOUR)

    await harness.run("FILES_CANARY_ROLLOUT", options)
    canary = {name for name in FOUR if make.deployed(tmp_path / name) == {"v": "2"}}
    before = {name: (tmp_path / name / "current").stat().st_ino for name in first}
    result = await harness.run("FILES_PRIMARY_ROLLOUT", {}, index=1)

    assert canary == set(first)
    assert result.status is StageStatus.SUCCESS
    assert all(make.deployed(tmp_path / name) == {"v": "2"} for name in FOUR)
    assert before == {name: (tmp_path / name / "current").stat().st_ino for name in first}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"targets": ["z"]}, "not a deploy target of this application: 'z' (it has a, b, c, d)"),
        ({"labels": {"zone": "three"}}, "no deploy target has the labels {'zone': 'three'}"),
    ],
)
async def test_a_canary_of_nobody_fails(
    make: FilesLab, options: dict[str, object], reason: str
) -> None:
    result = await make({"v": "1"}, targets=FOUR).run("FILES_CANARY_ROLLOUT", options)

    assert (result.status, result.reason) == (StageStatus.FAILURE, reason)


async def test_a_rollback_undoes_what_the_deployment_changed_and_nothing_else(
    make: FilesLab, tmp_path: Path
) -> None:
    await make({"v": "1"}, targets=FOUR).run("FILES_SYNC")
    untouched = (tmp_path / "d" / "current").lstat()
    harness = make({"v": "2"}, number=2, targets=FOUR, running=tmp_path / "commit-1")
    await harness.run("FILES_CANARY_ROLLOUT", {"targets": ["a", "b"]})

    result = await harness.run("FILES_ROLLBACK", {})
    again = await harness.run("FILES_ROLLBACK", {})

    assert (result.status, again.status) == (StageStatus.SUCCESS, StageStatus.SUCCESS)
    assert all(make.deployed(tmp_path / name) == {"v": "1"} for name in FOUR)
    assert (tmp_path / "d" / "current").lstat() == untouched


async def test_a_rollback_makes_a_release_anew_that_somebody_spoilt(
    make: FilesLab, tmp_path: Path
) -> None:
    await make({"v": "1"}).run("FILES_SYNC")
    (tmp_path / "a" / "current" / "v").write_text("spoilt")
    harness = make({"v": "2"}, number=2, running=tmp_path / "commit-1")
    await harness.run("FILES_SYNC")

    await harness.run("FILES_ROLLBACK")
    await harness.run("FILES_ROLLBACK")

    assert make.deployed(tmp_path / "a") == {"v": "1"}
    assert (tmp_path / "a" / "current").readlink().name.endswith("-rollback")


async def test_the_rollback_of_a_first_deployment_leaves_no_release_in_sight(
    make: FilesLab, tmp_path: Path
) -> None:
    harness = make({"v": "1"})
    await harness.run("FILES_SYNC")

    result = await harness.run("FILES_ROLLBACK")

    assert result.status is StageStatus.SUCCESS
    assert not (tmp_path / "a" / "current").is_symlink()


async def test_the_same_stage_again_changes_nothing(make: FilesLab, tmp_path: Path) -> None:
    harness = make({"v": "1"})
    await harness.run("FILES_SYNC")
    before = (tmp_path / "a" / "current").lstat()

    await harness.run("FILES_SYNC")

    assert (tmp_path / "a" / "current").lstat() == before
    assert "already" in harness.log[-1].text


async def test_a_sync_repairs_what_was_changed_by_a_new_release(
    make: FilesLab, tmp_path: Path
) -> None:
    """Never in place: who reads meanwhile would see half of it."""
    harness = make({"v": "1"})
    await harness.run("FILES_SYNC")
    spoilt = (tmp_path / "a" / "current").resolve()
    (spoilt / "v").write_text("spoilt")

    await harness.run("FILES_SYNC")

    assert make.deployed(tmp_path / "a") == {"v": "1"}
    assert (spoilt / "v").read_text() == "spoilt"


async def test_a_directory_of_another_application_is_refused(
    make: FilesLab, tmp_path: Path
) -> None:
    await make({"v": "1"}).run("FILES_SYNC")

    result = await make({"w": "2"}, number=2, application="other").run("FILES_SYNC")

    assert "belongs to another application (give each" in result.reason
    assert make.deployed(tmp_path / "a") == {"v": "1"}


async def test_what_stands_where_the_link_should_be_is_not_removed(
    make: FilesLab, tmp_path: Path
) -> None:
    make.write(tmp_path / "a" / "current", {"mine": "precious"})

    result = await make({"v": "1"}).run("FILES_SYNC")

    assert "is not a link" in result.reason
    assert (tmp_path / "a" / "current" / "mine").read_text() == "precious"


async def test_one_target_that_fails_does_not_stop_the_others(
    make: FilesLab, tmp_path: Path
) -> None:
    (tmp_path / "b").write_text("a file")
    harness = make({"v": "1"}, targets={"a": {}, "b": {}, "c": {}})

    result = await harness.run("FILES_SYNC")

    assert result.reason.startswith("1 of 3 deploy targets failed: b: ")
    assert make.deployed(tmp_path / "a") == make.deployed(tmp_path / "c") == {"v": "1"}
    kept = json.loads(harness.metadata["pipecd/stage-targets"])
    assert {name: each["status"] for name, each in kept.items()} == {
        "a": "SUCCESS",
        "b": "FAILURE",
        "c": "SUCCESS",
    }


@pytest.mark.parametrize(
    ("stage", "options", "fault"),
    [
        ("FILES_CANARY_ROLLOUT", {}, "no deploy target is chosen"),
        ("FILES_CANARY_ROLLOUT", {"percentage": -5}, "must be 1 to 100: -5"),
        ("FILES_CANARY_ROLLOUT", {"percentage": "101%"}, "must be 1 to 100: 101"),
        ("FILES_CANARY_ROLLOUT", {"targets": ["a"], "percentage": 5}, "cannot be given together"),
    ],
)
async def test_wrong_options_are_told_when_the_deployment_is_planned(
    make: FilesLab, stage: str, options: dict[str, object], fault: str
) -> None:
    (told,) = make({}).faults((stage, options))

    assert fault in told


async def test_a_quick_sync_and_a_pipeline_have_a_rollback(make: FilesLab) -> None:
    quick = make({}).quick_sync()
    pipeline = make({}).plan(("FILES_CANARY_ROLLOUT", {"percentage": 5}), ("FILES_SYNC", {}))

    assert [(each.name, each.rollback) for each in quick] == [
        ("FILES_SYNC", False),
        ("FILES_ROLLBACK", True),
    ]
    assert [(each.name, each.index) for each in pipeline if each.rollback] == [
        ("FILES_ROLLBACK", 0)
    ]
