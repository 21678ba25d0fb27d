# SPDX-License-Identifier: Apache-2.0
"""What is told of the directories: what runs, what drifted, what would change, what to plan."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipecd_sdk import Health, StageFailedError, SyncStatus
from pipecd_test_support.files_lab import FilesLab


async def test_target_release_and_files_are_told_with_their_health(
    make: FilesLab, tmp_path: Path
) -> None:
    harness = make({"index.html": "hello", "run.sh": "x"})
    await harness.run("FILES_SYNC")

    seen = await harness.live_state()

    release = "a/20240102T120100-00000000-00000001"
    assert [(each.id, each.kind, list(each.parents)) for _, each in seen.resources] == [
        ("a", "Directory", []),
        (release, "Release", ["a"]),
        (f"{release}/index.html", "File", [release]),
        (f"{release}/run.sh", "File", [release]),
    ]
    assert seen.healths == {Health.HEALTHY}
    assert seen.resources[0][1].metadata["path"] == str(tmp_path / "a")
    assert seen.resources[1][1].metadata["commit"] == f"{1:040x}"
    assert seen.resources[2][1].metadata["mode"] == "0644"
    assert seen.sync.status is SyncStatus.SYNCED


async def test_a_file_is_as_old_as_it_is(make: FilesLab, tmp_path: Path) -> None:
    """Not as new as the look at it; what is missing is as old as the release."""
    harness = make({"old": "1", "gone": "2", "link": "3"})
    await harness.run("FILES_SYNC")
    current = tmp_path / "a" / "current"
    os.utime(current / "old", (1_000_000_000, 1_000_000_000))
    (current / "gone").unlink()
    (current / "link").unlink()
    (current / "link").symlink_to("nowhere")

    first, second = await harness.live_state(), await harness.live_state()

    times = {each.name: each.created_at for _, each in first.resources}
    assert times["old"] == datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    assert times["gone"] == times["a"]
    assert times["link"] is not None
    assert times == {each.name: each.created_at for _, each in second.resources}


async def test_a_directory_without_a_release_is_unhealthy_and_out_of_sync(make: FilesLab) -> None:
    seen = await make({"index.html": "hello"}).live_state()

    assert seen.healths == {Health.UNHEALTHY}
    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert seen.sync.short_reason == "nothing is deployed here"


async def test_every_kind_of_drift_is_told_with_a_diff(make: FilesLab, tmp_path: Path) -> None:
    harness = make({"text": "one\ntwo\n", "gone": "x", "mode": "m", "binary": "b"})
    await harness.run("FILES_SYNC")
    current = tmp_path / "a" / "current"
    (current / "text").write_text("one\nTWO\n")
    (current / "gone").unlink()
    (current / "mode").chmod(0o777)
    (current / "extra").write_text("new\n")
    (current / "binary").write_bytes(b"\x00\x01")

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.OUT_OF_SYNC
    assert seen.sync.short_reason == "2 changed, 1 missing, 1 extra, 1 mode"
    reason = seen.sync.reason
    assert "changed: text\n--- a/text\n+++ b/text\n@@ -1,2 +1,2 @@\n one\n-TWO\n+two\n" in reason
    assert "missing: gone\n--- /dev/null\n+++ b/gone\n@@ -0,0 +1 @@\n+x\n" in reason
    assert "extra: extra\n--- a/extra\n+++ /dev/null\n" in reason
    assert "mode: mode\n-mode 0777\n+mode 0644\n" in reason
    assert "changed: binary\n(not a text, or too long to compare)\n" in reason
    by_name = {each.name: each for _, each in seen.resources}
    assert by_name["text"].health is Health.UNHEALTHY
    assert by_name["gone"].description == "missing"
    assert by_name["extra"].description == "extra"
    assert by_name["a"].health is Health.UNHEALTHY


async def test_a_newer_commit_is_drift_too(make: FilesLab) -> None:
    await make({"v": "1\n"}).run("FILES_SYNC")

    seen = await make({"v": "2\n"}, number=2).live_state()

    assert seen.sync.short_reason == "1 changed"
    assert seen.healths == {Health.HEALTHY}, "what runs is what was deployed"


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        ([{"paths": ["cache/**", "*.log"]}], SyncStatus.SYNCED),
        ([{"paths": ["**"], "differences": ["EXTRA"]}], SyncStatus.SYNCED),
        ([{"paths": ["cache/**"]}], SyncStatus.OUT_OF_SYNC),
        ([{"paths": ["**"], "differences": ["CHANGED", "MODE"]}], SyncStatus.OUT_OF_SYNC),
    ],
)
async def test_drift_can_be_ignored_by_rules(
    make: FilesLab, tmp_path: Path, rules: list[object], status: SyncStatus
) -> None:
    harness = make({"v": "1"}, options={"ignoreDrift": rules})
    await harness.run("FILES_SYNC")
    make.write(tmp_path / "a" / "current", {"cache/x": "x", "a.log": "y"})

    assert (await harness.live_state()).sync.status is status


async def test_a_file_replaced_by_a_link_is_changed_and_never_followed(
    make: FilesLab, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("top secret")
    harness = make({"v": "1"})
    await harness.run("FILES_SYNC")
    (tmp_path / "a" / "current" / "v").unlink()
    (tmp_path / "a" / "current" / "v").symlink_to(tmp_path / "secret")

    seen = await harness.live_state()

    assert seen.sync.short_reason == "1 changed"
    assert "top secret" not in seen.sync.reason


async def test_what_is_hidden_is_not_shown(make: FilesLab, tmp_path: Path) -> None:
    harness = make({"key": "old secret", "plain": "p"}, options={"hide": ["key"]})
    await harness.run("FILES_SYNC")
    (tmp_path / "commit-1" / "key").write_text("new secret")

    seen = await harness.live_state()
    preview = (await harness.plan_preview())["a"]

    assert "changed: key\n(the content is not shown)" in seen.sync.reason
    assert "secret" not in seen.sync.reason + preview.details


async def test_a_link_to_nothing_is_told_as_such(make: FilesLab, tmp_path: Path) -> None:
    harness = make({"v": "1"})
    await harness.run("FILES_SYNC")
    (tmp_path / "a" / "current").unlink()
    (tmp_path / "a" / "current").symlink_to("releases/gone")

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.UNKNOWN
    assert "leads to 'gone', which is not complete (sync the application)" in seen.sync.reason


async def test_very_many_files_are_told_as_a_number(make: FilesLab) -> None:
    harness = make({f"file-{number}": "" for number in range(1_100)})
    await harness.run("FILES_SYNC")

    seen = await harness.live_state()

    assert seen.resources[-1][1].name == "… and 100 more files"
    assert len(seen.resources) == 2 + 1_000 + 1


async def test_names_that_are_no_unicode_are_told_on_one_line(
    make: FilesLab, tmp_path: Path
) -> None:
    folder = make.write(tmp_path / "commit", {"a\nb": "x"})
    (folder / os.fsdecode(b"\xff")).write_text("y")
    harness = make(folder)
    await harness.run("FILES_SYNC")

    seen = await harness.live_state()

    assert [each.name for _, each in seen.resources[2:]] == ["a\\x0ab", "\\udcff"]


async def test_a_preview_tells_what_a_sync_would_do(make: FilesLab) -> None:
    first = await make({"a.txt": "1\n", "b.txt": "2\n"}).plan_preview()
    harness = make({"a.txt": "1\n", "b.txt": "2\n"})
    await harness.run("FILES_SYNC")
    same = await harness.plan_preview()
    changed = await make({"a.txt": "one\n", "c.txt": "3\n"}, number=2).plan_preview()

    assert first["a"].summary == "2 added (the first release)"
    assert (same["a"].summary, same["a"].no_change) == ("no file would change", True)
    assert changed["a"].summary == "1 changed, 1 added, 1 removed"
    assert not changed["a"].no_change
    assert "removed: b.txt\n--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-2\n" in changed["a"].details
    assert "-1\n+one\n" in changed["a"].details


async def test_looking_changes_nothing(make: FilesLab, tmp_path: Path) -> None:
    """A preview, or a look at what runs, must not make directories."""
    harness = make({"v": "1"})

    await harness.live_state()
    await harness.plan_preview()

    assert not (tmp_path / "a").exists()


async def test_the_version_is_the_commit_or_what_a_file_says(make: FilesLab) -> None:
    (plain,) = await make({"v": "1"}).versions()
    options = {"versionFile": "VERSION"}
    (written,) = await make({"VERSION": "1.2.3\nmore"}, number=2, options=options).versions()

    assert (plain.name, plain.version) == ("shop", "0000000")
    assert written.version == "1.2.3"
    with pytest.raises(StageFailedError, match="there is no version file 'VERSION'"):
        await make({"v": "1"}, number=3, options=options).versions()


@pytest.mark.parametrize(
    ("files", "sync", "summary"),
    [
        ({"a.html": "1", "docs/x.md": "1"}, 1, "Quick sync, no file has changed"),
        ({"a.html": "1", "docs/x.md": "2"}, 1, "Quick sync, all 1 changed files are of docs/**"),
        ({"a.html": "2", "docs/x.md": "2"}, 2, "Pipeline sync, a.html changed"),
        ({"a.html": "2", "b": "", "docs/x.md": "1"}, 2, "Pipeline sync, a.html and 1 more changed"),
    ],
)
async def test_a_change_of_certain_files_is_not_worth_a_pipeline(
    make: FilesLab, tmp_path: Path, files: dict[str, str], sync: int, summary: str
) -> None:
    running = make.write(tmp_path / "running", {"a.html": "1", "docs/x.md": "1"})
    harness = make(files, options={"quickSyncPaths": ["docs/**"]}, running=running)

    strategy = await harness.strategy()

    assert (strategy.sync, strategy.summary) == (sync, summary)
