# SPDX-License-Identifier: Apache-2.0
"""Pages: every row once, and no cursor after the last."""

from typing import Any

import pytest

from pipecd_controlplane.store import paging
from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import ConfigError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import deployment_pb2

ALL = DeploymentFilter()


async def add(kept: Stores, build: MessageBuilder, count: int) -> list[str]:
    """Deployments of the same second by threes; answers their ids, newest first."""
    keys = []
    for number in range(count):
        created_at = build.NOON + number // 3
        await kept.deployments.add(build.deployment(id=f"d{number:03}", created_at=created_at))
        keys.append((created_at, f"d{number:03}"))
    return [deployment_id for _, deployment_id in sorted(keys, reverse=True)]


async def pages(kept: Stores, wanted: DeploymentFilter, limit: int) -> list[list[str]]:
    found, cursor = [], ""
    while True:
        page = await kept.deployments.page("ours", wanted, limit=limit, cursor=cursor)
        found.append([deployment.id for deployment in page.items])
        cursor = page.cursor
        if not cursor:
            return found


@pytest.mark.parametrize("limit", [1, 4, 5, 9, 10, 11])
async def test_every_row_comes_once_newest_first(
    kept: Stores, build: MessageBuilder, limit: int
) -> None:
    ids = await add(kept, build, 10)

    found = await pages(kept, ALL, limit)

    assert [deployment_id for page in found for deployment_id in page] == ids
    assert all(len(page) == limit for page in found[:-1])
    assert found[-1]


async def test_a_list_that_ends_with_the_page_has_no_cursor(
    kept: Stores, build: MessageBuilder
) -> None:
    """A v1 agent of upstream asks until the cursor is empty, and gives up on an error."""
    await add(kept, build, 4)

    page = await kept.deployments.page("ours", ALL, limit=4, cursor="")

    assert (len(page.items), page.cursor) == (4, "")


async def test_an_empty_list_has_no_cursor(kept: Stores) -> None:
    page = await kept.deployments.page("ours", ALL, limit=4, cursor="")

    assert (page.items, page.cursor) == ([], "")


async def test_a_cursor_is_not_given_for_rows_that_do_not_match(
    kept: Stores, build: MessageBuilder
) -> None:
    """The rest of the table holds nothing that the caller would get."""
    await add(kept, build, 5)
    await kept.deployments.add(
        build.deployment(id="wanted", created_at=build.NOON + 99, labels={"env": "prod"})
    )

    page = await kept.deployments.page(
        "ours", DeploymentFilter(labels={"env": "prod"}), limit=1, cursor=""
    )

    assert ([d.id for d in page.items], page.cursor) == (["wanted"], "")


async def test_limit_zero_is_everything_that_fits(kept: Stores, build: MessageBuilder) -> None:
    ids = await add(kept, build, paging.BATCH + 5)

    assert await pages(kept, ALL, 0) == [ids]


async def test_a_page_ends_before_it_is_too_large_for_its_reader(
    kept: Stores, build: MessageBuilder
) -> None:
    for number in range(4):
        await kept.deployments.add(
            build.deployment(id=f"d{number}", created_at=build.NOON + number, summary="x" * 1000)
        )

    found, cursor = [], ""
    while True:
        page = await kept.deployments.not_completed_of_piped(
            "ours", "piped", cursor=cursor, max_bytes=3000
        )
        found.append([deployment.id for deployment in page.items])
        cursor = page.cursor
        if not cursor:
            break

    assert found == [["d3", "d2"], ["d1", "d0"]]


async def test_one_row_larger_than_a_page_still_comes(kept: Stores, build: MessageBuilder) -> None:
    await kept.deployments.add(build.deployment(summary="x" * 1000))

    page = await kept.deployments.not_completed_of_piped("ours", "piped", cursor="", max_bytes=10)

    assert ([d.id for d in page.items], page.cursor) == (["d1"], "")


@pytest.mark.parametrize(
    "cursor",
    [
        "e30=",
        "nonsense",
        "ÿ",
        "MTIz",
        paging.Position(created_at=2**63, id="x").encode(),
        paging.Position(created_at=-(2**63) - 1, id="x").encode(),
    ],
)
async def test_a_foreign_cursor_is_refused_with_a_sentence(kept: Stores, cursor: str) -> None:
    with pytest.raises(ConfigError, match="is not one of ours"):
        await kept.deployments.page("ours", ALL, limit=1, cursor=cursor)


async def test_deployments_are_filtered_by_everything_at_once(
    kept: Stores, build: MessageBuilder
) -> None:
    running, failed = deployment_pb2.DEPLOYMENT_RUNNING, deployment_pb2.DEPLOYMENT_FAILURE
    for number, (status, app) in enumerate(
        [(running, "a"), (failed, "a"), (failed, "b"), (running, "c")]
    ):
        await kept.deployments.add(
            build.deployment(id=f"d{number}", status=status, application_id=app)
        )
    await kept.deployments.add(
        build.deployment(id="theirs", status=failed, application_id="a", project_id="theirs")
    )

    wanted = DeploymentFilter(statuses=(running, failed), application_ids=("a", "b"))
    found = await pages(kept, wanted, 0)
    only_failed = await pages(kept, DeploymentFilter(statuses=(failed,)), 0)

    assert found == [["d2", "d1", "d0"]]
    assert only_failed == [["d2", "d1"]]


async def test_applications_are_filtered_by_everything_at_once(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.applications.add(build.application(id="a", labels={"env": "dev", "team": "x"}))
    await kept.applications.add(build.application(id="b", labels={"env": "dev"}, disabled=True))
    await kept.applications.add(build.application(id="c", name="other", piped_id="another"))
    await kept.applications.add(build.application(id="d", project_id="theirs"))

    async def ids(**wanted: Any) -> list[str]:
        page = await kept.applications.page("ours", ApplicationFilter(**wanted), limit=0, cursor="")
        return sorted(application.id for application in page.items)

    assert await ids() == ["a", "b", "c"]
    assert await ids(disabled=False) == ["a", "c"]
    assert await ids(labels={"env": "dev"}) == ["a", "b"]
    assert await ids(labels={"env": "dev"}, disabled=False, name="hello") == ["a"]
    assert await ids(piped_id="another") == ["c"]
