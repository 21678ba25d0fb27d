# SPDX-License-Identifier: Apache-2.0
"""Data folders are closed to other users before they are used."""

import os
import stat
from pathlib import Path

import pytest

from pipecd_runtime.private_folder import UnsafeFolderError, close_folder


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_a_new_folder_is_its_users_alone(tmp_path: Path) -> None:
    assert close_folder(tmp_path / "a" / "data") == ""
    assert mode_of(tmp_path / "a" / "data") == 0o700


@pytest.mark.parametrize(
    ("before", "after"),
    [(0o777, 0o750), (0o775, 0o750), (0o755, 0o750), (0o707, 0o700), (0o1777, 0o1750)],
)
def test_a_folder_that_others_may_enter_is_closed_and_that_is_said(
    tmp_path: Path, before: int, after: int
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(before)

    said = close_folder(folder)

    assert mode_of(folder) == after
    assert f"{before:04o}" in said


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_a_closed_folder_stays_as_it_is(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)

    assert close_folder(tmp_path) == ""
    assert mode_of(tmp_path) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)

    with pytest.raises(UnsafeFolderError, match="belongs to the user 12345"):
        close_folder(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_folder_in_which_others_left_something_is_refused(tmp_path: Path) -> None:
    """A link in place of a file of ours would make us write where they say."""
    planted = tmp_path / "lock"
    planted.symlink_to("/elsewhere")
    os.chown(planted, 12345, -1, follow_symlinks=False)
    tmp_path.chmod(0o777)

    with pytest.raises(UnsafeFolderError, match="'lock' in it belongs to the user 12345"):
        close_folder(tmp_path)
    assert mode_of(tmp_path) == 0o777
