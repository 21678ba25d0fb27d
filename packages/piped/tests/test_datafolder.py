# SPDX-License-Identifier: Apache-2.0
"""One piped per data folder."""

import errno
import os
from pathlib import Path

import pytest

from pipecd_model.errors import StateError
from pipecd_piped.datafolder import locked


def test_a_second_one_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    refused = pytest.raises(StateError, match=f"another piped, process {os.getpid()}")
    with locked(tmp_path), refused, locked(tmp_path):
        pass

    with locked(tmp_path):
        pass


def test_the_folder_keeps_its_id(tmp_path: Path) -> None:
    with locked(tmp_path / "new") as first:
        pass

    with locked(tmp_path / "new") as second:
        assert second == first
    with locked(tmp_path / "other") as third:
        assert third != first


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StateError, match="cannot use the data folder"), locked(tmp_path / "file"):
        pass


def test_a_new_folder_is_for_pipeds_user_only(tmp_path: Path) -> None:
    with locked(tmp_path / "data"):
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_an_id_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "id").mkdir()

    refused = pytest.raises(StateError, match=r"cannot use the data folder .*/id")
    with refused, locked(tmp_path):
        pass


def test_a_folder_that_may_not_be_written_is_a_sentence_although_its_lock_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that became read-only: the lock is there already, and nothing else can be made."""

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / ".writable-x"))

    with locked(tmp_path):
        pass
    monkeypatch.setattr("pipecd_piped.datafolder.NamedTemporaryFile", refuse)

    with pytest.raises(StateError, match="Read-only file system") as caught, locked(tmp_path):
        pass
    assert "--data-dir" in caught.value.hint
