# SPDX-License-Identifier: Apache-2.0
"""Objects in a folder: the contract, and what only a folder can suffer."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from pipecd_controlplane.store.blobs import folder
from pipecd_controlplane.store.blobs.blob_store import (
    BlobMissingError,
    BlobsRefusedError,
    BlobsUnavailableError,
)
from pipecd_controlplane.store.blobs.config import BlobFolder
from pipecd_controlplane.store.blobs.folder import INCOMING, FolderBlobs
from pipecd_controlplane.store.blobs.open import open_blobs
from pipecd_test_support.blob_store_contract import BlobStoreContract, find_keys, in_parts


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    opened = await open_blobs(BlobFolder(folder=tmp_path / "blobs"))
    assert isinstance(opened, FolderBlobs)
    return opened


class TestFolderBlobs(BlobStoreContract):
    pass


async def test_only_the_user_of_the_server_can_read_objects(
    blobs: FolderBlobs, tmp_path: Path
) -> None:
    await blobs.put("logs/d1/a", b"secret")

    for path in ("blobs", "blobs/logs", "blobs/logs/d1", "blobs/logs/d1/a"):
        assert (tmp_path / path).stat().st_mode & 0o077 == 0


async def test_what_a_killed_writer_left_is_removed_once_it_is_old(
    blobs: FolderBlobs, tmp_path: Path
) -> None:
    """A younger one may be another server's, which is just writing it."""
    old, young = (tmp_path / "blobs" / INCOMING / name for name in ("old", "young"))
    for each in (old, young):
        each.write_bytes(b"half an obj")
    os.utime(old, (time.time() - 100_000,) * 2)

    await blobs.open()

    assert not old.exists()
    assert young.exists()
    assert await find_keys(blobs) == set()


async def test_a_folder_that_is_gone_is_no_missing_object(
    blobs: FolderBlobs, tmp_path: Path
) -> None:
    """A share that is not mounted must not look like logs that were lost."""
    await blobs.put("logs/a", b"one")
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")

    with pytest.raises(BlobsUnavailableError, match="is gone"):
        await blobs.get("logs/a")
    with pytest.raises(BlobsUnavailableError, match="is gone"):
        await blobs.check()
    # What is there when a share is not mounted.
    (tmp_path / "blobs").mkdir()
    with pytest.raises(BlobsUnavailableError, match="is gone"):
        await blobs.get("logs/a")
    with pytest.raises(BlobsUnavailableError, match="is gone"):
        await blobs.put_parts("logs/b", in_parts(b"two"))
    (tmp_path / "blobs").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "blobs")
    assert await blobs.get("logs/a") == b"one"


async def test_a_writer_that_is_cancelled_writes_nowhere_else(
    blobs: FolderBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread goes on; another file may have the number of its descriptor by then."""
    began, may_write, ended = threading.Event(), threading.Event(), threading.Event()
    write = folder._write

    def wait_and_write(descriptor: int, data: bytes) -> None:
        began.set()
        may_write.wait(60)
        try:
            write(descriptor, data)
        finally:
            ended.set()

    monkeypatch.setattr(folder, "_write", wait_and_write)
    writing = asyncio.create_task(blobs.put_parts("logs/a", in_parts(b"of the object")))
    await asyncio.to_thread(began.wait, 60)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    with (tmp_path / "other").open("wb"):
        may_write.set()
        await asyncio.to_thread(ended.wait, 60)

    assert (tmp_path / "other").read_bytes() == b""
    assert await find_keys(blobs) == set()
    assert list((tmp_path / "blobs" / INCOMING).iterdir()) == []


async def test_a_folder_that_never_held_what_rows_refer_to_is_refused(
    blobs: FolderBlobs, tmp_path: Path
) -> None:
    """The place where a share is mounted is there before the share is, and empty."""
    place = tmp_path / "mount"
    place.mkdir()
    (place / "lost+found").mkdir()
    key = "stage-logs/d1/a"

    for each in (place, tmp_path / "none"):
        with pytest.raises(BlobsRefusedError, match="has never held any") as caught:
            await open_blobs(BlobFolder(folder=each), referred=[key, "../blobs"])
        assert "mount its share" in caught.value.hint
        assert "'.incoming'" in caught.value.hint
    assert [each.name for each in place.iterdir()] == ["lost+found"]
    assert not (tmp_path / "none").exists()

    await open_blobs(BlobFolder(folder=tmp_path / "blobs"), referred=[key])
    await blobs.put(key, b"log")
    (tmp_path / "blobs" / INCOMING).rmdir()
    await open_blobs(BlobFolder(folder=tmp_path / "blobs"), referred=["stage-logs/lost", key])


async def test_a_file_where_a_folder_should_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("")

    with pytest.raises(BlobsRefusedError, match="cannot keep objects in the folder"):
        await open_blobs(BlobFolder(folder=tmp_path / "blobs"))


async def test_an_emptied_folder_of_a_day_goes_and_comes_back(
    blobs: FolderBlobs, tmp_path: Path
) -> None:
    await blobs.put("logs/d1/a", b"one")
    await blobs.delete("logs/d1/a")
    assert not (tmp_path / "blobs/logs/d1").exists()

    await blobs.put("logs/d1/b", b"two")
    assert await find_keys(blobs) == {"logs/d1/b"}


async def test_a_link_to_elsewhere_is_not_listed_as_a_folder(
    blobs: FolderBlobs, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    (tmp_path / "blobs" / "logs").symlink_to(tmp_path / "other")

    assert "logs/file" not in await find_keys(blobs)
    with pytest.raises(BlobMissingError):
        await blobs.get("logs/none")
