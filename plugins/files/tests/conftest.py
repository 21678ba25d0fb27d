# SPDX-License-Identifier: Apache-2.0
"""The lab of the files plugin, in a folder of its own for each test."""

from pathlib import Path

import pytest

from pipecd_test_support.files_lab import FilesLab


@pytest.fixture
def make(tmp_path: Path) -> FilesLab:
    return FilesLab(tmp_path)
