# SPDX-License-Identifier: Apache-2.0
"""Nobody is offered what the server would refuse, and rights that end show at once."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright, expect

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.usecases import sessions
from pipecd_test_support.chosen_store import find_postgres
from pipecd_test_support.console_site import PATIENCE_MS, find_chromium
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import deployment_pb2, project_pb2
from pipecd_wire.pipecd.api import access_pb2

expect.set_options(timeout=PATIENCE_MS)

PAYLOAD = "<img src=x onerror=window.stolen=1>"
Policy = project_pb2.ProjectRBACPolicy
Resource = project_pb2.ProjectRBACResource


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[ServedControlPlane]:
    """A control plane of this process, with the console, whose sessions a test can make."""
    async with AsyncExitStack() as opened:
        running = await opened.enter_async_context(
            control_plane(
                ServerSettings(data_dir=folder, postgres=find_postgres(folder), grace_seconds=1)
            )
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


async def make_waiting(plane: ServedControlPlane, **fields: Any) -> str:
    """A deployment that waits for an approval."""
    agent = await plane.agent()
    application = await plane.application(agent)
    stage = plane.build.stage(
        "s1",
        **fields,
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


async def set_role(plane: ServedControlPlane, name: str, *actions: Policy.Action.ValueType) -> None:
    """A role of the project's own: it reads everything, and does this to deployments."""
    reading = Policy(resources=[Resource(type=Resource.ALL)], actions=[Policy.GET, Policy.LIST])
    doing = Policy(resources=[Resource(type=Resource.DEPLOYMENT)], actions=actions)

    def edit(project: project_pb2.Project) -> None:
        del project.rbac_roles[:]
        policies = [reading, doing] if actions else [reading]
        project.rbac_roles.append(project_pb2.ProjectRBACRole(name=name, policies=policies))

    await plane.stores.projects.update("default", edit)


async def test_a_right_that_ends_shows_at_once_in_an_open_tab(
    console: None, tmp_path: Path
) -> None:
    async with served(tmp_path) as plane, signed_in(plane, "Deployer") as page:
        await set_role(plane, "Deployer", Policy.ALL)
        deployment = await make_waiting(plane)
        await page.goto(f"/deployments/{deployment}")
        cancel = page.get_by_role("button", name="Cancel and more")
        await expect(cancel).to_be_visible()
        await expect(page.locator("#connection[data-connection=online]")).to_be_attached()

        await set_role(plane, "Deployer")

        await expect(cancel).to_have_count(0)
        await expect(page.get_by_role("button", name="WAIT_APPROVAL")).to_be_visible()


async def test_names_of_roles_and_what_a_stage_says_stay_text(
    console: None, tmp_path: Path
) -> None:
    async with served(tmp_path) as plane, signed_in(plane, "Admin") as page:
        await set_role(plane, PAYLOAD, Policy.ALL)
        deployment = await make_waiting(
            plane,
            metadata={"pipecd/stage-display-metadata": f"{PAYLOAD} note"},
            authorized_operators=[PAYLOAD],
        )
        await page.goto("/settings/members")
        await expect(page.get_by_role("region", name="Roles").get_by_text(PAYLOAD)).to_be_visible()
        await page.get_by_role("button", name=f"Change the role {PAYLOAD}").click()
        dialog = page.get_by_role("dialog", name=f"Change the role {PAYLOAD}")
        await dialog.get_by_role("button", name="Back").click()
        await page.get_by_role("button", name=f"Delete the role {PAYLOAD}").click()
        await expect(page.get_by_role("dialog")).to_contain_text(PAYLOAD)
        await page.goto(f"/deployments/{deployment}")
        card = page.locator("button[data-stage=WAIT_APPROVAL]")
        await expect(card).to_contain_text(f"{PAYLOAD} note")
        await expect(page.get_by_text(f"Who may approve: {PAYLOAD}")).to_be_visible()
        assert await page.evaluate("window.stolen") is None
