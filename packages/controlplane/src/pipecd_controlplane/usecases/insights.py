# SPDX-License-Identifier: Apache-2.0
"""Delivery figures, computed from the outcomes of deployments at each request.

Nothing is collected in the background: a figure is current at once, and an outage loses nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from pipecd_controlplane.store.applications import ApplicationCount
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.outcomes import DAY, DeploymentOutcome, Tally
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import ConfigError
from pipecd_wire.model import common_pb2, deployment_pb2
from pipecd_wire.model import insight_pb2 as pb
from pipecd_wire.webservice import service_pb2 as webservice

MOST_DAYS: Final = 3 * 366
"""Of one response; two years hold a leap day, and the current month is not over."""

RESTORE_WINDOW: Final = 30 * DAY
"""How long before the range a failure may lie that was restored within the range."""

KINDS: Final = {int(number): name for name, number in common_pb2.ApplicationKind.items()}
"""All kinds that other web consoles know; they fail on any other."""


async def read_data(
    stores: Stores, project_id: str, request: webservice.GetInsightDataRequest, now: Now
) -> webservice.GetInsightDataResponse:
    """Returns one figure per day or month (UTC) from `range_from` to `range_to`, inclusive."""
    if request.range_to < request.range_from:
        raise ConfigError("invalid request: range_to is before range_from")
    if request.range_to - request.range_from > MOST_DAYS * DAY:
        raise ConfigError(f"invalid request: the range is longer than {MOST_DAYS} days")
    step_of = _month if request.resolution == pb.MONTHLY else _day
    steps = _steps(request.range_from, request.range_to, step_of)
    start, end = steps[0], request.range_to + 1
    labels = dict(request.labels)
    if request.metrics_kind == pb.MTTR:
        ended = await stores.outcomes.restores(
            project_id,
            start - RESTORE_WINDOW,
            end,
            application_id=request.application_id,
            labels=labels,
        )
        values = _restore_seconds(ended, step_of)
    elif request.metrics_kind in _FIGURES:
        tallies = await stores.outcomes.tally(
            project_id, start, end, application_id=request.application_id, labels=labels
        )
        values = _FIGURES[request.metrics_kind](tallies, step_of)
    else:
        raise ConfigError(
            "invalid request: metrics_kind: the count of applications is no figure over time",
            hint="GetInsightApplicationCount tells it",
        )
    points = [pb.InsightDataPoint(timestamp=step, value=values.get(step, 0)) for step in steps]
    return webservice.GetInsightDataResponse(
        updated_at=now(), type=pb.MATRIX, matrix=[pb.InsightSampleStream(data_points=points)]
    )


async def count_applications(
    stores: Stores, project_id: str, now: Now
) -> webservice.GetInsightApplicationCountResponse:
    """Returns the number of applications by kind, enabled and disabled."""
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for each in await stores.applications.counts(project_id):
        state = "DISABLED" if each.disabled else "ENABLED"
        counts[_kind(each), state] += each.count
    return webservice.GetInsightApplicationCountResponse(
        updated_at=now(),
        counts=[
            pb.InsightApplicationCount(labels={"KIND": kind, "ACTIVE_STATUS": state}, count=count)
            for (kind, state), count in sorted(counts.items())
        ],
    )


def _kind(sort: ApplicationCount) -> str:
    """Returns the kind that applications are counted under.

    For one that a v1 piped deploys the field has no meaning; its label `kind` counts if it is one.
    """
    label = sort.kind_label.upper()
    if sort.plugin_based and label in KINDS.values():
        return label
    return KINDS.get(sort.kind, KINDS[common_pb2.KUBERNETES])


Step = Callable[[int], int]
"""Returns the beginning of the day or month that a time is in."""


def _day(at: int) -> int:
    return at - at % DAY


def _month(at: int) -> int:
    first = datetime.fromtimestamp(at, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    return int(first.timestamp())


def _steps(start: int, end: int, step_of: Step) -> list[int]:
    steps = [step_of(start)]
    while True:
        # The first moment that is surely in the next step, whichever its length.
        length = 1 if step_of is _day else 32
        later = datetime.fromtimestamp(steps[-1], UTC) + timedelta(days=length)
        following = step_of(int(later.timestamp()))
        if following > end:
            return steps
        steps.append(following)


def _frequency(tallies: Iterable[Tally], step_of: Step) -> dict[int, float]:
    counts: defaultdict[int, float] = defaultdict(float)
    for tally in tallies:
        counts[step_of(tally.day * DAY)] += tally.count
    return counts


def _failure_rate(tallies: Iterable[Tally], step_of: Step) -> dict[int, float]:
    known = list(tallies)
    failed = [each for each in known if each.status == deployment_pb2.DEPLOYMENT_FAILURE]
    all_of_them, failures = _frequency(known, step_of), _frequency(failed, step_of)
    return {step: failures.get(step, 0) / count for step, count in all_of_them.items()}


def _lead_seconds(tallies: Iterable[Tally], step_of: Step) -> dict[int, float]:
    """Returns the mean time from a commit to the end of its successful deployment, by step."""
    good = [each for each in tallies if each.status == deployment_pb2.DEPLOYMENT_SUCCESS]
    counts = _frequency(good, step_of)
    seconds: defaultdict[int, float] = defaultdict(float)
    for each in good:
        seconds[step_of(each.day * DAY)] += max(0, each.lead_seconds)
    return {step: seconds[step] / count for step, count in counts.items()}


def _restore_seconds(outcomes: Iterable[DeploymentOutcome], step_of: Step) -> dict[int, float]:
    """Returns the mean time from an application's first failure to its next success.

    By the step in which the success was.
    """
    broken: dict[str, int] = {}
    times: defaultdict[int, list[int]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.status == deployment_pb2.DEPLOYMENT_FAILURE:
            broken.setdefault(outcome.application_id, outcome.completed_at)
        elif outcome.status == deployment_pb2.DEPLOYMENT_SUCCESS:
            since = broken.pop(outcome.application_id, None)
            if since is not None:
                times[step_of(outcome.completed_at)].append(outcome.completed_at - since)
    return {step: sum(each) / len(each) for step, each in times.items()}


_FIGURES: Final = {
    pb.DEPLOYMENT_FREQUENCY: _frequency,
    pb.CHANGE_FAILURE_RATE: _failure_rate,
    pb.LEAD_TIME: _lead_seconds,
}
