# SPDX-License-Identifier: Apache-2.0
"""Real git repositories for every test of piped that needs one."""

from pathlib import Path

import pytest

from pipecd_test_support.git_remote import GitRemote, Remotes


@pytest.fixture
def git_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remotes:
    """Make repositories: `git_remote("name")`. The git settings of whoever runs this stay out."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def make(name: str = "remote", branch: str = "main") -> GitRemote:
        return GitRemote(tmp_path / name, branch)

    return make
