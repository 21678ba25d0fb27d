# SPDX-License-Identifier: Apache-2.0
"""piped stays light."""

import subprocess
import sys

import pytest

HEAVY = [
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "httpx2",
    "pipecd_sdk",
    "pipecd_controlplane",
    "uvloop",
]


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """What a running piped has imported, by the first part of its name."""
    program = "import piped.app, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("package", HEAVY)
def test_the_agent_does_without(package: str, imported: set[str]) -> None:
    assert "piped" in imported
    assert package not in imported
