# SPDX-License-Identifier: Apache-2.0
"""Serves a control plane with settings of the test's own."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_test_support.chosen_store import find_postgres
from pipecd_test_support.controlplane_server import ServedControlPlane

PlaneWith = Callable[..., AbstractAsyncContextManager[ServedControlPlane]]
"""`async with plane_with(public_url=…) as plane`."""


@asynccontextmanager
async def serving_with(folder: Path, **settings: Any) -> AsyncIterator[ServedControlPlane]:
    """Serves a folder while the block runs; `settings` are fields of `ServerSettings`."""
    plain: dict[str, Any] = {
        "data_dir": folder,
        "postgres": find_postgres(folder),
        "grace_seconds": 1,
        "console_dir": folder / "no-console",
    }
    given = ServerSettings(**(plain | settings))
    async with AsyncExitStack() as opened:
        running = await opened.enter_async_context(control_plane(given))
        yield await ServedControlPlane.of(running, opened)
