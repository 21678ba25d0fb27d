# SPDX-License-Identifier: Apache-2.0
"""What is old goes, but for what is still referred to."""

import pytest

from pipecd_controlplane.store.purge import PurgePosition
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import events
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import application_pb2, deployment_pb2


def reference(deployment_id: str) -> application_pb2.ApplicationDeploymentReference:
    return application_pb2.ApplicationDeploymentReference(deployment_id=deployment_id)


async def add_ended(kept: Stores, build: MessageBuilder, deployment_id: str, at: int) -> None:
    await kept.deployments.add(
        build.deployment(
            id=deployment_id, status=deployment_pb2.DEPLOYMENT_SUCCESS, completed_at=at
        )
    )


async def test_a_step_says_where_the_next_one_begins(kept: Stores, build: MessageBuilder) -> None:
    """After what stays, too: else the purge would find it again and again."""
    await kept.applications.add(
        build.application(most_recently_triggered_deployment=reference("a"))
    )
    for deployment_id in ("a", "b", "c"):
        await add_ended(kept, build, deployment_id, build.NOON)

    place = await kept.purge.deployments(before=build.NOON + 1, place=PurgePosition())

    assert place == PurgePosition(completed_at=build.NOON, id="c")
    assert await kept.purge.deployments(before=build.NOON + 1, place=place) is None
    left = [await kept.deployments.find("ours", each) is not None for each in ("a", "b", "c")]
    assert left == [True, False, False]


async def test_what_is_as_old_as_the_limit_stays(kept: Stores, build: MessageBuilder) -> None:
    await add_ended(kept, build, "d1", build.NOON)
    await events.register(
        kept,
        "ours",
        name="image",
        data="v1",
        labels={},
        contexts={},
        trace=None,
        now=lambda: build.NOON,
    )

    assert await kept.purge.deployments(before=build.NOON, place=PurgePosition()) is None
    assert await kept.purge.events(before=build.NOON) == 0
    assert await kept.purge.events(before=build.NOON + 1) == 1


async def purge_all(kept: Stores, before: int) -> None:
    place: PurgePosition | None = PurgePosition()
    while place is not None:
        place = await kept.purge.deployments(before=before, place=place)


@pytest.mark.parametrize(
    "field", ["most_recently_triggered_deployment", "most_recently_successful_deployment"]
)
async def test_the_last_deployment_of_an_application_is_never_purged(
    kept: Stores, build: MessageBuilder, field: str
) -> None:
    await kept.applications.add(build.application(**{field: reference("last")}))
    for deployment_id in ("older", "last"):
        await kept.deployments.add(
            build.deployment(
                id=deployment_id,
                status=deployment_pb2.DEPLOYMENT_FAILURE,
                completed_at=build.NOON,
            )
        )

    await purge_all(kept, before=build.NOON + 1)

    assert await kept.deployments.find("ours", "older") is None
    assert await kept.deployments.find("ours", "last") is not None


async def test_the_last_deployment_of_a_deleted_application_goes(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.applications.add(
        build.application(deleted=True, most_recently_triggered_deployment=reference("last"))
    )
    await kept.deployments.add(
        build.deployment(
            id="last", status=deployment_pb2.DEPLOYMENT_SUCCESS, completed_at=build.NOON
        )
    )

    await purge_all(kept, before=build.NOON + 1)

    assert await kept.deployments.find("ours", "last") is None
