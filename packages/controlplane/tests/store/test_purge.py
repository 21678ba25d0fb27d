# SPDX-License-Identifier: Apache-2.0
"""What is old goes, but for what is still referred to."""

import pytest

from pipecd_controlplane.store.purge import PurgePosition
from pipecd_controlplane.store.stores import Stores
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import application_pb2, deployment_pb2


def reference(deployment_id: str) -> application_pb2.ApplicationDeploymentReference:
    return application_pb2.ApplicationDeploymentReference(deployment_id=deployment_id)


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
