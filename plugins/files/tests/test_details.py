# SPDX-License-Identifier: Apache-2.0
"""What is shown of a directory, a release and a file that somebody opens."""

import os
from pathlib import Path

import pytest

from pipecd_sdk import Resource, ResourceGoneError
from pipecd_sdk.testing import NOON
from pipecd_test_support.files_lab import FilesLab

RELEASE = "a/20240102T120100-00000000-00000001"


async def test_a_file_shows_its_content_and_its_difference_from_git(
    make: FilesLab, tmp_path: Path
) -> None:
    harness = make({"text": "one\ntwo\n", "same": "s\n"})
    await harness.run("FILES_SYNC")
    (tmp_path / "a" / "current" / "text").write_text("one\nTWO\n")

    changed = await harness.open_resource(f"{RELEASE}/text")
    same = await harness.open_resource(f"{RELEASE}/same")

    assert (changed.manifest, changed.language) == ("one\nTWO\n", "")
    assert changed.difference is not None
    assert "-TWO\n+two\n" in changed.difference
    assert "same" not in changed.difference
    assert (same.manifest, same.difference, list(same.notes)) == ("s\n", "", [])


async def test_a_directory_and_its_release_show_what_was_released_when(
    make: FilesLab, tmp_path: Path
) -> None:
    await make({"v": "1\n"}).run("FILES_SYNC")
    harness = make({"v": "2\n"}, number=2)
    await harness.run("FILES_SYNC")
    (tmp_path / "a" / "current" / "v").write_text("3\n")

    for resource_id in ("a", "a/20240102T120200-00000000-00000002"):
        opened = await harness.open_resource(resource_id)

        assert f"path: {tmp_path / 'a'}\n" in opened.manifest
        assert f"commit: '{2:040x}'\n" in opened.manifest
        assert opened.difference is not None
        assert "-3\n+2\n" in opened.difference
        first, second = opened.events
        assert (first.reason, first.at) == ("Released", NOON)
        assert first.message == "1 file of 0000000 as 20240102T120100-00000000-00000001"
        assert second.message.endswith("which is the current one")


async def test_a_directory_where_nothing_is_deployed_can_be_opened(make: FilesLab) -> None:
    opened = await make({"v": "1\n"}).open_resource("a")

    assert opened.manifest.startswith("path: ")
    assert opened.difference is not None
    assert "missing: v\n" in opened.difference
    assert list(opened.events) == []


async def test_what_may_hold_secrets_is_not_shown(make: FilesLab, tmp_path: Path) -> None:
    harness = make({"key": "sesame\n", "open": "o\n"}, options={"hide": ["key"]})
    await harness.run("FILES_SYNC")
    (tmp_path / "a" / "current" / "key").write_text("changed sesame\n")

    for resource_id in ("a", RELEASE, f"{RELEASE}/key"):
        opened = await harness.open_resource(resource_id)

        assert "sesame" not in repr(opened)
    assert opened.manifest == ""
    assert opened.notes == ["the content is not shown, because it may hold secrets"]


@pytest.mark.parametrize(
    ("content", "note"), [(b"a\0b", "it is no text"), (b"x" * 300_000, "it has 300000 bytes")]
)
async def test_a_file_that_nobody_can_read_says_why(
    make: FilesLab, tmp_path: Path, content: bytes, note: str
) -> None:
    harness = make({"blob": "x"})
    await harness.run("FILES_SYNC")
    (tmp_path / "a" / "current" / "blob").write_bytes(content)

    opened = await harness.open_resource(f"{RELEASE}/blob")

    assert opened.manifest == ""
    assert note in opened.notes[0]


async def test_links_and_missing_files_are_shown_as_what_they_are(
    make: FilesLab, tmp_path: Path
) -> None:
    """A link is never followed: it may lead to what the application must not see."""
    secret = tmp_path / "secret"
    secret.write_text("sesame")
    harness = make({"gone": "g\n", "link": "l\n"})
    await harness.run("FILES_SYNC")
    current = tmp_path / "a" / "current"
    (current / "gone").unlink()
    (current / "link").unlink()
    os.symlink(secret, current / "link")  # noqa: PTH211

    gone = await harness.open_resource(f"{RELEASE}/gone")
    link = await harness.open_resource(f"{RELEASE}/link")

    assert gone.notes == ["the file is missing"]
    assert gone.difference is not None
    assert "+g\n" in gone.difference
    assert link.manifest == f"link to {secret}\n"
    assert "sesame" not in repr(link)


@pytest.mark.parametrize(
    "resource_id",
    [
        f"{RELEASE}/../../../outside",
        f"{RELEASE}//etc/hostname",
        f"{RELEASE}/nothing",
        "a/20230102T120100-00000000-00000000/v",
        "b/v",
        "v",
        "",
    ],
)
async def test_what_the_release_does_not_have_is_gone(
    make: FilesLab, tmp_path: Path, resource_id: str
) -> None:
    (tmp_path / "outside").write_text("sesame")
    harness = make({"v": "1\n"})
    await harness.run("FILES_SYNC")

    with pytest.raises(ResourceGoneError):
        await harness.open_resource(Resource(id=resource_id, name="v", kind="File"))


async def test_a_release_of_another_application_is_not_shown(make: FilesLab) -> None:
    await make({"v": "theirs\n"}, application="theirs").run("FILES_SYNC")

    with pytest.raises(ResourceGoneError, match="another application"):
        await make({"v": "ours\n"}, number=2, application="ours").open_resource("a")
