# SPDX-License-Identifier: Apache-2.0
"""Every test has a folder of its own for the records of scripts."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def scripts(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    monkeypatch.setenv("PIPECD_SCRIPTS_DIR", str(folder))
    return folder
