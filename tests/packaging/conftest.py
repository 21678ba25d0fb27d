# SPDX-License-Identifier: Apache-2.0
"""The archives of all distributions, built once for the tests of a process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(output: Path, *options: str) -> Path:
    """Builds all distributions into a folder, as `make dist` does."""
    tool = str(ROOT / "tools" / "dist.py")
    command = [sys.executable, tool, "--output", str(output), *options]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return output


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and source archives of all distributions."""
    return build(tmp_path_factory.mktemp("dist"))
