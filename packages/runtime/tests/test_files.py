# SPDX-License-Identifier: Apache-2.0
"""write_atomically: whole or not at all, and never through somebody's link."""

import stat
from pathlib import Path

import pytest

from pipecd_runtime.files import write_atomically


def test_the_new_content_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "id"
    file.write_bytes(b"old")

    write_atomically(file, b"new")

    assert file.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["id"]


def test_what_a_process_that_died_has_left_beside_it_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "id.new").write_bytes(b"half of something much longer")

    write_atomically(tmp_path / "id", b"new")

    assert (tmp_path / "id").read_bytes() == b"new"


def test_a_mode_closes_the_file_to_others(tmp_path: Path) -> None:
    write_atomically(tmp_path / "key", b"secret", mode=0o600)

    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_an_existing_file_can_be_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "key"
    write_atomically(file, b"first", replace=False)

    with pytest.raises(FileExistsError):
        write_atomically(file, b"second", replace=False)

    assert file.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_link_beside_it_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "id.new").symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(tmp_path / "id", b"new")

    assert victim.read_bytes() == b"mine"
