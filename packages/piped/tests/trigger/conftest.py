# SPDX-License-Identifier: Apache-2.0
"""A remote with two applications, and the bench that triggers run on."""

from pathlib import Path

import pytest

from pipecd_test_support.git_remote import Remotes
from pipecd_test_support.trigger_bench import Bench, application_file


@pytest.fixture
def bench(git_remote: Remotes, tmp_path: Path) -> Bench:
    remote = git_remote()
    remote.commit(
        {
            "apps/web/app.pipecd.yaml": application_file("web"),
            "apps/witness/app.pipecd.yaml": application_file("witness"),
        },
        "first",
    )
    return Bench(remote, tmp_path / "data")
