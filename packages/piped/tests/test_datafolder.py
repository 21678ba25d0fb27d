# SPDX-License-Identifier: Apache-2.0
"""One piped per data folder."""

import os
from pathlib import Path

import pytest

from pipecd_model.errors import ConfigError, StateError
from piped.datafolder import locked


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

    with pytest.raises(ConfigError, match="cannot use the data folder"), locked(tmp_path / "file"):
        pass


def test_a_new_folder_is_for_pipeds_user_only(tmp_path: Path) -> None:
    with locked(tmp_path / "data"):
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
