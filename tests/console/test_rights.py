# SPDX-License-Identifier: Apache-2.0
"""Nobody is offered what the server would refuse, and rights that end show at once."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from playwright.async_api import Page, async_playwright, expect

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.usecases import sessions
from pipecd_test_support.console_site import PATIENCE_MS, find_chromium
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import access_pb2

expect.set_options(timeout=PATIENCE_MS)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[ServedControlPlane]:
    """A control plane of this process, with the console, whose sessions a test can make."""
    async with AsyncExitStack() as opened:
        running = await opened.enter_async_context(
            control_plane(ServerSettings(data_dir=folder, grace_seconds=1))
        )
        yield await ServedControlPlane.of(running, opened)


@asynccontextmanager
async def signed_in(plane: ServedControlPlane, role: str) -> AsyncIterator[Page]:
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


async def make_waiting(plane: ServedControlPlane) -> str:
    """A deployment that waits for an approval."""
    agent = await plane.agent()
    application = await plane.application(agent)
    stage = plane.build.stage(
        "s1",
        status=deployment_pb2.STAGE_RUNNING,
        name="WAIT_APPROVAL",
        available_operation=deployment_pb2.MANUAL_OPERATION_APPROVE,
    )
    return await plane.deployment(agent, application, "d1", stage)


async def test_a_viewer_is_offered_nothing_that_would_be_refused(
    console: None, tmp_path: Path
) -> None:
    async with served(tmp_path) as plane, signed_in(plane, "Viewer") as page:
        deployment = await make_waiting(plane)
        await page.goto(f"/deployments/{deployment}")
        await expect(page.get_by_role("button", name="WAIT_APPROVAL")).to_be_visible()
        for action in ("Approve", "Cancel", "Skip", "Roll back"):
            await expect(page.get_by_role("button", name=action)).to_have_count(0)
        await page.goto("/pipeds")
        await expect(page.get_by_role("heading", name="Pipeds")).to_be_visible()
        await expect(page.get_by_role("button", name="Add a piped")).to_have_count(0)
        names = (
            await page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
        )
        assert "Audit" not in [name.strip() for name in names]


async def test_an_editor_may_cancel(console: None, tmp_path: Path) -> None:
    async with served(tmp_path) as plane, signed_in(plane, "Editor") as page:
        deployment = await make_waiting(plane)
        await page.goto(f"/deployments/{deployment}")
        await expect(page.get_by_role("button", name="Cancel and more")).to_be_visible()
