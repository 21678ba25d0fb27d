# SPDX-License-Identifier: Apache-2.0
"""Nobody is offered what the server would refuse, and rights that end show at once."""

from pathlib import Path
from typing import Any

from playwright.async_api import expect

from pipecd_test_support.console_page import serve_page, sign_in_page
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import deployment_pb2, project_pb2

PAYLOAD = "<img src=x onerror=window.stolen=1>"
Policy = project_pb2.ProjectRBACPolicy
Resource = project_pb2.ProjectRBACResource


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
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Viewer") as page:
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
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Editor") as page:
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
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Deployer") as page:
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
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Admin") as page:
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
