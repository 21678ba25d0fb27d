# SPDX-License-Identifier: Apache-2.0
"""FolderLock: one owner at a time, in a folder that is closed to other users."""

import os
import stat
from pathlib import Path

import pytest

from pipecd_runtime.folder_lock import LOCK_FILE, FolderInUseError, FolderLock


def test_a_second_owner_is_told_who_has_it(tmp_path: Path) -> None:
    with FolderLock(tmp_path / "data"), pytest.raises(FolderInUseError) as caught:
        FolderLock(tmp_path / "data")

    assert caught.value.owner == str(os.getpid())


def test_a_folder_that_was_given_up_can_be_owned_again(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        pass

    with FolderLock(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_an_open_folder_is_closed_to_others_and_that_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)

    with FolderLock(folder) as lock:
        assert "closed the folder" in lock.notice

    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    with FolderLock(folder) as again:
        assert again.notice == ""


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / LOCK_FILE).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic links"):
        FolderLock(tmp_path / "data")
