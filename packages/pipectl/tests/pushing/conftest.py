# SPDX-License-Identifier: Apache-2.0
"""Keeps the user's logins out of the tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where docker keeps logins."""
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder
