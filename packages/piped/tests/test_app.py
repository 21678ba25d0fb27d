# SPDX-License-Identifier: Apache-2.0
"""piped stays light."""

import errno
import subprocess
import sys
from typing import cast

import pytest

from pipecd_model.errors import StateError
from pipecd_piped import app
from pipecd_piped.agent import Agent, Settings

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
    program = (
        "import pipecd_piped.app, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("package", HEAVY)
def test_the_agent_does_without(package: str, imported: set[str]) -> None:
    assert "pipecd_piped" in imported
    assert package not in imported


async def test_a_file_that_piped_needs_and_cannot_use_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def build(*_: object) -> Agent:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/processes")

    monkeypatch.setattr(app, "build", build)

    with pytest.raises(StateError, match="cannot use '/data/processes': Permission denied"):
        await app.run(cast(Settings, None))
