# SPDX-License-Identifier: Apache-2.0
"""A control plane with settings of the test's own, and a client for its pages."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings


@pytest.fixture
def plane_with(plane_of: Callable[..., Any], tmp_path: Path) -> Any:
    @asynccontextmanager
    async def make(**settings: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as opened:
            running = await opened.enter_async_context(
                control_plane(
                    ServerSettings(
                        **{"data_dir": tmp_path / "data", "grace_seconds": 1, **settings}
                    )
                )
            )
            yield await plane_of(running, opened)

    return make


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as made:
        yield made
