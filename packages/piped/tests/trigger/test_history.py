# SPDX-License-Identifier: Apache-2.0
"""When a deployment was created, so that a newer one never looks older than the one before it."""

import pytest

from pipecd_piped.trigger.history import MOST_AHEAD_SECONDS, TriggerHistory
from pipecd_test_support.trigger_bench import NOW, WEB, Desk, application
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference

Reference = ApplicationDeploymentReference


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (0, NOW),
        (NOW - 1, NOW),
        (NOW, NOW + 1),
        (NOW + 3600, NOW + 3601),
        (NOW + MOST_AHEAD_SECONDS, NOW),
    ],
    ids=["first", "earlier", "same second", "clock set back", "clock was wrong"],
)
def test_the_next_deployment_is_created_after_the_last_one(last: int, expected: int) -> None:
    reference = Reference(deployment_id="d", started_at=last) if last else None
    known = application("web", most_recently_triggered_deployment=reference)

    assert TriggerHistory(Desk()).find_time(known, NOW + 0.9) == expected


async def test_the_last_one_is_remembered_before_the_control_plane_tells_of_it() -> None:
    desk = Desk()
    desk.last["web"] = Reference(deployment_id="d", started_at=NOW + 5)
    history = TriggerHistory(desk)
    await history.recall([WEB])

    assert history.find_time(WEB, NOW) == NOW + 6
