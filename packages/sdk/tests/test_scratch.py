# SPDX-License-Identifier: Apache-2.0
"""Temporary folders of a killed process go with the next one; those in use, and others', stay."""

import time
from pathlib import Path

import pytest

from pipecd_sdk.scratch import Scratch, sweep

PREFIX = Scratch.prefix


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_ours_alone_and_gone_when_it_is_closed(folder: Path) -> None:
    with Scratch() as scratch:
        (scratch.path / "values.yaml").write_text("a: 1")
        assert scratch.path.parent == folder
        assert scratch.path.stat().st_mode & 0o077 == 0
    assert not scratch.path.exists()
    scratch.close()


def test_what_a_killed_process_has_left_is_removed_when_it_is_not_new(folder: Path) -> None:
    left = folder / f"{PREFIX}left"
    (left / "charts").mkdir(parents=True)

    sweep(folder, PREFIX, now=time.time())
    assert left.is_dir(), "somebody may be about to lock it"

    sweep(folder, PREFIX, now=time.time() + 3600)
    assert not left.exists()


def test_a_folder_in_use_a_link_and_other_names_stay(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    link = folder / f"{PREFIX}link"
    link.symlink_to(other)
    (folder / f"{PREFIX}file").write_text("no folder")
    with Scratch() as scratch:
        sweep(folder, PREFIX, now=time.time() + 3600)
        assert scratch.path.is_dir()
    assert other.is_dir()
    assert link.is_symlink()
