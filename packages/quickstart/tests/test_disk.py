# SPDX-License-Identifier: Apache-2.0
"""What the system says of a disk becomes a sentence; what is a bug stays one."""

import errno
import os
from pathlib import Path

import pytest

from pipecd_model.errors import PipecdError, StateError, TimedOutError
from pipecd_quickstart.disk import explaining_disk


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/some/file")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_also_from_inside_of_groups(tmp_path: Path, number: int) -> None:
    inner = ExceptionGroup("inner", [failure(number)])
    for error in (failure(number), ExceptionGroup("outer", [TimedOutError("slow"), inner])):
        with pytest.raises(StateError, match="is full"), explaining_disk(tmp_path):
            raise error


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOTDIR])
def test_a_folder_that_cannot_be_used_is_said_with_the_reason(tmp_path: Path, number: int) -> None:
    with pytest.raises(StateError, match=os.strerror(number)) as caught, explaining_disk(tmp_path):
        raise failure(number)

    assert "'/some/file'" in str(caught.value)
    assert caught.value.hint == "choose another with --data-dir"


def test_an_error_of_ours_in_a_group_is_raised_alone(tmp_path: Path) -> None:
    ours = PipecdError("piped ended")

    with pytest.raises(PipecdError) as caught, explaining_disk(tmp_path):
        raise ExceptionGroup("tasks", [ValueError("follows from it"), ours])

    assert caught.value is ours


def test_a_bug_stays_one(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="refused"), explaining_disk(tmp_path):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    with pytest.raises(ExceptionGroup), explaining_disk(tmp_path):
        raise ExceptionGroup("tasks", [ValueError("bug")])
