# SPDX-License-Identifier: Apache-2.0
"""Which folder is deployed, and what of it is never shown."""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_files.compare import LONGEST_TOLD, compare, format_patch
from pipecd_plugin_files.config import FilesOptions
from pipecd_plugin_files.entry import Entry
from pipecd_plugin_files.source import folder_of

from pipecd_sdk import Source, StageStatus
from pipecd_sdk.testing import StageHarness
from pipecd_test_support.files_lab import FilesLab

SECRETS = b"""
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  encryption:
    encryptedSecrets: {password: AgB}
    decryptionTargets: [public/secret.yaml, ./other.yaml]
"""


@pytest.mark.parametrize(
    ("folder", "hidden"), [("public", {"secret.yaml"}), (".", {"public/secret.yaml", "other.yaml"})]
)
def test_files_that_hold_opened_secrets_are_never_shown(
    tmp_path: Path, folder: str, hidden: set[str]
) -> None:
    (tmp_path / "public").mkdir()
    source = Source(
        application_directory=str(tmp_path),
        config=SECRETS,
        read_options=lambda: FilesOptions(source=folder),
    )

    found = folder_of(source)

    asked = {"secret.yaml", "public/secret.yaml", "other.yaml", "index.html"}
    assert {path for path in asked if found.hidden(path)} == hidden


@pytest.mark.parametrize(
    ("spec", "hidden"),
    [
        (b"encryption: {DecryptionTargets: [key.yaml]}", {"key.yaml"}),
        (b"encryption: {decryptionTargets: [../shop/key.yaml]}", {"key.yaml"}),
        (b"encryption: {decryptionTargets: [link.yaml]}", {"key.yaml", "link.yaml"}),
        (b"encryptedSecrets: {pw: AgB}, attachment: {targets: [key.yaml]}", {"key.yaml"}),
    ],
    ids=["any case", "by its folder", "by a link", "attached"],
)
def test_a_secret_is_hidden_however_it_comes_into_a_file(
    tmp_path: Path, spec: bytes, hidden: set[str]
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "link.yaml").symlink_to("key.yaml")
    source = Source(
        application_directory=str(folder),
        config=b"spec: {" + spec + b"}",
        read_options=lambda: FilesOptions(source="."),
    )

    found = folder_of(source)

    assert {each for each in ("key.yaml", "link.yaml", "conf.yaml") if found.hidden(each)} == hidden


def test_a_very_large_difference_is_told_in_part() -> None:
    entries = {f"file-{number}": Entry("file", 0o644, 200_000, str(number)) for number in range(50)}
    read: list[str] = []

    def content(path: str) -> bytes:
        read.append(path)
        return b"line\n" * 40_000

    text = format_patch(compare({}, entries), lambda _: None, content, lambda _: False)

    assert len(text) < LONGEST_TOLD + 2 * 300_000
    assert len(read) < 10
    assert text.endswith(f"… and {50 - len(read)} more files\n")


async def test_two_deployments_to_one_directory_wait_for_each_other(
    make: FilesLab, tmp_path: Path
) -> None:
    (tmp_path / "a" / "releases").mkdir(parents=True)
    lock = os.open(tmp_path / "a" / "releases" / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    harness: StageHarness[Any] = make({"v": "1"}, targets={"a": {}, "b": {}})

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("FILES_SYNC"))
        await harness.wait_logged(f"{tmp_path / 'b'} has release")
        assert not (tmp_path / "a" / "current").is_symlink()
        os.close(lock)

    assert (await running).status is StageStatus.SUCCESS
    assert make.deployed(tmp_path / "a") == {"v": "1"}


async def test_a_cancelled_sync_stops_copying_and_leaves_nothing(
    make: FilesLab, tmp_path: Path
) -> None:
    harness = make({f"d{number % 9}/{number}": "x" for number in range(3_000)})
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("FILES_SYNC"))
        while not any((tmp_path / "a").glob("releases/.new-*/*/*")):  # noqa: ASYNC110
            await asyncio.sleep(0)
        running.cancel()

    assert running.cancelled()
    assert not (tmp_path / "a" / "current").is_symlink()
    assert [path.name for path in (tmp_path / "a" / "releases").iterdir()] == [".lock"]
