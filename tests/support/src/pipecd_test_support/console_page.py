# SPDX-License-Identifier: Apache-2.0
"""A page of the console, with the control plane in this process: a test reaches into both."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from playwright.async_api import Page, async_playwright, expect

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.usecases import sessions
from pipecd_test_support.chosen_store import find_postgres
from pipecd_test_support.console_site import PATIENCE_MS, find_chromium
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.pipecd.api import access_pb2

expect.set_options(timeout=PATIENCE_MS)


@asynccontextmanager
async def serve_page(folder: Path) -> AsyncIterator[ServedControlPlane]:
    """A control plane of this process, with the console, whose sessions a test can make."""
    async with AsyncExitStack() as opened:
        running = await opened.enter_async_context(
            control_plane(
                ServerSettings(data_dir=folder, postgres=find_postgres(folder), grace_seconds=1)
            )
        )
        yield await ServedControlPlane.of(running, opened)


@asynccontextmanager
async def sign_in_page(plane: ServedControlPlane, role: str) -> AsyncIterator[Page]:
    """The page of somebody with one role."""
    identity = sessions.UserIdentity(
        subject="vera", via=access_pb2.Session.OIDC, roles=(role,), groups=()
    )
    token = await sessions.start(plane.stores, "default", identity, now=lambda: int(time.time()))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        context = await browser.new_context(base_url=f"http://{plane.address}")
        context.set_default_timeout(PATIENCE_MS)
        await context.add_cookies(
            [{"name": "token", "value": token, "url": f"http://{plane.address}"}]
        )
        yield await context.new_page()
        await browser.close()
