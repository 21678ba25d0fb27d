# SPDX-License-Identifier: Apache-2.0
"""Figures from how deployments ended: right at once, over leap days, per label."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import insights
from pipecd_model.errors import ConfigError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model import insight_pb2 as pb
from pipecd_wire.webservice import service_pb2 as web

SUCCESS, FAILURE = model.DEPLOYMENT_SUCCESS, model.DEPLOYMENT_FAILURE
CANCELLED = model.DEPLOYMENT_CANCELLED


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


class History:
    """Deployments that ended, one after another."""

    def __init__(self, kept: Stores, build: MessageBuilder) -> None:
        self._kept = kept
        self._build = build
        self._count = 0

    async def ended(
        self, when: str, status: model.DeploymentStatus.ValueType = SUCCESS, **fields: Any
    ) -> None:
        self._count += 1
        fields = {"application_id": "app", **fields}
        committed = fields.pop("committed", at(when) - 60)
        deployment = self._build.deployment(
            id=f"d{self._count}", created_at=at(when) - 30, **fields
        )
        deployment.trigger.commit.created_at = committed
        await self._kept.deployments.add(deployment)

        def end(kept: model.Deployment) -> None:
            kept.status = status
            kept.completed_at = at(when)

        await self._kept.deployments.update("ours", deployment.id, end)


@pytest.fixture
def history(kept: Stores, build: MessageBuilder) -> History:
    return History(kept, build)


async def figure(
    kept: Stores, kind: Any, start: str, end: str, resolution: Any = pb.DAILY, **fields: Any
) -> dict[str, float]:
    request = web.GetInsightDataRequest(
        metrics_kind=kind, range_from=at(start), range_to=at(end), resolution=resolution, **fields
    )
    answer = await insights.read_data(kept, "ours", request, lambda: 7)
    assert (answer.type, len(answer.matrix), answer.updated_at) == (pb.MATRIX, 1, 7)
    return {
        datetime.fromtimestamp(point.timestamp, UTC).strftime("%Y-%m-%d"): round(point.value, 4)
        for point in answer.matrix[0].data_points
    }


async def test_a_figure_is_there_as_soon_as_a_deployment_ends(
    kept: Stores, history: History
) -> None:
    await history.ended("2024-02-28T23:59:59")
    await history.ended("2024-02-29T00:00:00", FAILURE)
    await history.ended("2024-02-29T12:00:00", CANCELLED)

    found = await figure(kept, pb.DEPLOYMENT_FREQUENCY, "2024-02-28T08:00", "2024-03-01T08:00")

    assert found == {"2024-02-28": 1, "2024-02-29": 2, "2024-03-01": 0}


async def test_the_failure_rate_is_of_all_that_ended(kept: Stores, history: History) -> None:
    for status in (SUCCESS, FAILURE, CANCELLED, SUCCESS):
        await history.ended("2024-02-29T12:00", status)

    found = await figure(kept, pb.CHANGE_FAILURE_RATE, "2024-02-28T00:00", "2024-02-29T23:00")

    assert found == {"2024-02-28": 0, "2024-02-29": 0.25}


async def test_two_years_with_a_leap_day_are_answered_by_month(
    kept: Stores, history: History
) -> None:
    await history.ended("2023-02-10T12:00")
    await history.ended("2024-02-29T12:00")

    found = await figure(
        kept, pb.DEPLOYMENT_FREQUENCY, "2023-02-01T00:00", "2025-02-01T00:00", pb.MONTHLY
    )

    assert len(found) == 25
    assert {month: count for month, count in found.items() if count} == {
        "2023-02-01": 1,
        "2024-02-01": 1,
    }


async def test_lead_time_is_from_the_commit_to_the_end_of_a_success(
    kept: Stores, history: History
) -> None:
    await history.ended("2024-01-02T12:00", committed=at("2024-01-02T11:00"))
    await history.ended("2024-01-02T13:00", committed=at("2024-01-02T10:00"))
    await history.ended("2024-01-02T14:00", FAILURE, committed=at("2024-01-01T00:00"))

    found = await figure(kept, pb.LEAD_TIME, "2024-01-02T00:00", "2024-01-02T23:00")

    assert found == {"2024-01-02": 2 * 3600}


async def test_time_to_restore_is_from_the_first_failure_to_the_next_success(
    kept: Stores, history: History
) -> None:
    await history.ended("2024-01-01T23:00", FAILURE)  # before the range
    await history.ended("2024-01-02T00:30", FAILURE)
    await history.ended("2024-01-02T00:45", CANCELLED)
    await history.ended("2024-01-02T01:00")
    await history.ended("2024-01-02T02:00")
    await history.ended("2024-01-02T03:00", FAILURE, application_id="other")
    await history.ended("2024-01-02T07:00", application_id="other")
    await history.ended("2024-01-02T08:00", FAILURE)  # not restored yet

    found = await figure(kept, pb.MTTR, "2024-01-02T00:00", "2024-01-02T23:00")

    assert found == {"2024-01-02": 3 * 3600}


async def test_figures_are_per_application_and_per_label(kept: Stores, history: History) -> None:
    day = "2024-01-02T12:00"
    await history.ended(day, labels={"env": "prod", "team": "x"})
    await history.ended(day, labels={"env": "prod"}, application_id="other")
    await history.ended(day, labels={"env": "dev"})
    await history.ended(day, labels={"env": "prod"}, project_id="ours", application_id="other")

    async def count(**fields: Any) -> float:
        found = await figure(kept, pb.DEPLOYMENT_FREQUENCY, day, day, **fields)
        return found["2024-01-02"]

    assert await count() == 4
    assert await count(labels={"env": "prod"}) == 3
    assert await count(labels={"env": "prod", "team": "x"}) == 1
    assert await count(labels={"env": "prod"}, application_id="other") == 2
    assert await count(labels={"env": "none"}) == 0


async def test_another_projects_deployments_do_not_count(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.deployments.add(
        build.deployment(project_id="theirs", status=SUCCESS, completed_at=at("2024-01-02T12:00"))
    )

    found = await figure(kept, pb.DEPLOYMENT_FREQUENCY, "2024-01-02T00:00", "2024-01-02T00:00")

    assert found == {"2024-01-02": 0}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"range_from": 10, "range_to": 5}, "range_to is before range_from"),
        ({"range_from": 1, "range_to": 2_000_000_000}, "longer than 1098 days"),
        (
            {"range_from": 1, "range_to": 2, "metrics_kind": "APPLICATIONS_COUNT"},
            "no figure over time",
        ),
        (
            {"range_from": 1, "range_to": 2, "labels": {f"k{n}": "v" for n in range(11)}},
            "at most 10",
        ),
    ],
)
async def test_what_cannot_be_answered_is_the_callers_fault(
    kept: Stores, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        await insights.read_data(kept, "ours", web.GetInsightDataRequest(**fields), lambda: 7)
