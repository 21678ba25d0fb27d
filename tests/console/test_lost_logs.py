# SPDX-License-Identifier: Apache-2.0
"""What the page of a log shows when its lines cannot be read: for good, or for a while."""

from collections import Counter
from pathlib import Path

from playwright.async_api import Locator, Page, Request, expect

from pipecd_controlplane.ops.objects import seal_logs
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_test_support.console_page import serve_page, sign_in_page
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import deployment_pb2, project_pb2
from pipecd_wire.model.logblock_pb2 import LogBlock

Policy = project_pb2.ProjectRBACPolicy
Resource = project_pb2.ProjectRBACResource
LINES = 3000
KEY = LogKey(deployment_id="d1", stage_id="s1")
PATH = "/deployments/d1"
FEW = 12
"""Reads of a log in the seconds that a test takes; a loop makes hundreds."""


class Reads:
    """Counts what a page asks the server for, by the name of the call."""

    def __init__(self, page: Page) -> None:
        self.counts: Counter[str] = Counter()
        page.on("request", self._note)

    def _note(self, request: Request) -> None:
        self.counts[request.url.rpartition("/")[2]] += 1

    @property
    def of_log(self) -> int:
        return self.counts["ReadStageLog"]


def find_folder(plane: ServedControlPlane) -> Path:
    """The folder of the objects."""
    return plane.running.data_dir / "blobs"


async def add_lines(plane: ServedControlPlane, *, width: int = 0) -> None:
    """A deployment that is over, with one log."""
    stage = plane.build.stage("s1", name="WAIT", status=deployment_pb2.STAGE_SUCCESS)
    await plane.stores.deployments.add(
        plane.build.deployment(
            id="d1",
            project_id="default",
            stages=[stage],
            status=deployment_pb2.DEPLOYMENT_SUCCESS,
        )
    )
    for start in range(1, LINES + 1, 500):
        blocks = [
            LogBlock(index=number, log=f"this is line {number} {'x' * width}", created_at=1)
            for number in range(start, start + 500)
        ]
        is_last = start + 500 > LINES
        await plane.stores.stage_logs.append("default", KEY, blocks, completed=is_last)


async def seal(plane: ServedControlPlane) -> None:
    assert plane.stores.blobs is not None
    assert await seal_logs(plane.stores, plane.stores.blobs) == 1


async def lose_object(plane: ServedControlPlane) -> None:
    assert plane.stores.blobs is not None
    [entry] = [each async for each in plane.stores.blobs.iterate("stage-logs/")]
    await plane.stores.blobs.delete(entry.key)


def find_line(page: Page, number: int) -> Locator:
    return page.locator(f"#line-{number}")


async def test_a_log_whose_object_is_gone_is_said_to_be_lost_and_is_left_alone(
    console: None, tmp_path: Path
) -> None:
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Viewer") as page:
        await add_lines(plane)
        await seal(plane)
        await lose_object(plane)
        reads = Reads(page)

        await page.goto(PATH)

        told = page.get_by_role("region", name="Log of WAIT").get_by_role("alert")
        await expect(told).to_contain_text("This is lost")
        await expect(told).to_contain_text("the log of the stage 's1' is lost: the object")
        await expect(told.get_by_role("button")).to_have_count(0)
        await expect(page.get_by_text("3,000 lines")).to_be_visible()
        await expect(find_line(page, LINES)).to_contain_text("…")
        await page.get_by_label("Search the log").fill("line 7")
        await expect(page.get_by_text("search failed")).to_be_visible()
        known = reads.of_log
        assert known <= 3
        async with page.expect_response("**/ReadStageLog"):
            await page.get_by_role("log").evaluate(
                "box => { box.scrollTop = box.scrollHeight / 2 }"
            )
        await expect(find_line(page, LINES // 2)).to_contain_text("…")
        await expect(told).to_contain_text("This is lost")
        assert reads.of_log <= known + 2, "only the blocks that came into sight"


async def test_a_log_whose_store_is_away_for_a_while_shows_its_lines_afterwards(
    console: None, tmp_path: Path
) -> None:
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Viewer") as page:
        await add_lines(plane)
        await seal(plane)
        away = tmp_path / "away"
        find_folder(plane).rename(away)
        reads = Reads(page)

        await page.goto(PATH)

        told = page.get_by_role("region", name="Log of WAIT").get_by_role("alert")
        await expect(told).to_contain_text("That is not possible right now")
        await expect(told).to_contain_text("It is tried again by itself.")
        await expect(page.get_by_text("3,000 lines")).to_be_visible()
        while reads.of_log < 4:  # it does try
            async with page.expect_request("**/ReadStageLog"):
                pass
        away.rename(find_folder(plane))
        await expect(find_line(page, LINES)).to_contain_text("this is line 3000")
        await expect(told).to_have_count(0)
        assert reads.of_log <= FEW


async def test_a_log_that_cannot_be_read_at_first_is_read_when_the_server_is_back(
    console: None, tmp_path: Path
) -> None:
    """Also where nothing else says how long it is: the stream of changes stays away."""
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Viewer") as page:
        await add_lines(plane)
        for call in ("ReadStageLog", "WatchChanges"):
            await page.context.route(f"**/{call}", lambda route: route.abort())
        reads = Reads(page)
        await page.goto(PATH)
        told = page.get_by_role("region", name="Log of WAIT").get_by_role("alert")
        await expect(told).to_contain_text("The control plane does not answer")

        await page.context.unroute("**/ReadStageLog")

        await expect(find_line(page, LINES)).to_contain_text("this is line 3000")
        await expect(told).to_have_count(0)
        assert reads.of_log <= FEW


async def test_a_log_whose_block_is_longer_than_an_answer_is_read_to_its_end(
    console: None, tmp_path: Path
) -> None:
    """500 lines of it are 3 MB, and an answer has 2 MiB."""
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Viewer") as page:
        await add_lines(plane, width=6000)
        reads = Reads(page)

        await page.goto(PATH)

        await expect(find_line(page, LINES)).to_contain_text("this is line 3000")
        assert reads.of_log <= FEW


async def set_rights(plane: ServedControlPlane, *types: Resource.ResourceType.ValueType) -> None:
    """The role of somebody who may see these."""

    def edit(project: project_pb2.Project) -> None:
        del project.rbac_roles[:]
        resources = [Resource(type=each) for each in types]
        policy = Policy(resources=resources, actions=[Policy.GET, Policy.LIST])
        project.rbac_roles.append(project_pb2.ProjectRBACRole(name="Reader", policies=[policy]))

    await plane.stores.projects.update("default", edit)


async def test_a_log_that_is_not_followed_any_more_says_why(console: None, tmp_path: Path) -> None:
    async with serve_page(tmp_path) as plane, sign_in_page(plane, "Reader") as page:
        await set_rights(plane, Resource.PROJECT, Resource.DEPLOYMENT)
        stage = plane.build.stage("s1", name="WAIT", status=deployment_pb2.STAGE_RUNNING)
        await plane.stores.deployments.add(
            plane.build.deployment(id="d1", project_id="default", stages=[stage])
        )
        blocks = plane.build.blocks(1, 2)
        await plane.stores.stage_logs.append("default", KEY, blocks, completed=False)
        await page.goto(PATH)
        await expect(page.get_by_text("2 lines, still writing")).to_be_visible()
        await expect(page.locator("#connection[data-connection=online]")).to_be_attached()

        await set_rights(plane, Resource.PROJECT)

        log = page.get_by_role("region", name="Log of WAIT")
        await expect(log.get_by_text("New lines do not come any more")).to_be_visible()
        await expect(log.get_by_text("there is no deployment 'd1'")).to_be_visible()
        await expect(log.get_by_text("still writing")).to_have_count(0)
        await expect(find_line(page, 2)).to_be_visible()
