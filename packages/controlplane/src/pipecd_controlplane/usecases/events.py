# SPDX-License-Identifier: Apache-2.0
"""Events: registered by programs, handled by pipeds, which write them into git."""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import limits, stage_actions, traces
from pipecd_controlplane.usecases.ownership import Agent, own_deployment
from pipecd_controlplane.usecases.traces import NewTrace
from pipecd_model.errors import ConfigError, ConflictError, NotFoundError
from pipecd_model.ids import new_id
from pipecd_wire.model import event_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice

OF_DEPLOYMENT: Final = uuid.UUID("c3a8b0a4-1b52-5d7e-8c53-0f8a52a1d9be")
"""The namespace of the ids of events that deployments register."""

WAITING: Final = "It is going to be replaced by {}"
SHOWN_DATA: Final = 500
"""Characters of an event's data in the sentence about it; it is shown in lists."""

SHOWN_NAME: Final = 80
"""Characters of an event's name in the sentence about its refusal."""

HANDLED: Final = frozenset({pb.EVENT_SUCCESS, pb.EVENT_FAILURE})

MOST_REPORTED: Final = 1000
"""Of one report."""


def key_of(name: str, labels: Mapping[str, str]) -> str:
    """Returns the key of events with this name and labels; both generations of piped compute it."""
    text = name + "".join(f"/{key}:{labels[key]}" for key in sorted(labels))
    return hashlib.sha256(text.encode()).hexdigest()


def _describe_waiting(data: str) -> str:
    shown = data if len(data) <= SHOWN_DATA else f"{data[:SHOWN_DATA]}…"
    return WAITING.format(shown)


async def register(
    stores: Stores,
    project_id: str,
    *,
    name: str,
    data: str,
    labels: Mapping[str, str],
    contexts: Mapping[str, str],
    trace: NewTrace | None,
    now: Now,
    wanted_id: str | None = None,
) -> str:
    """Add a new event, and the commit it is about if there is one; returns its id."""
    limits.text("name", name, limits.NAME)
    limits.text("data", data, limits.EVENT_DATA)
    limits.labels("labels", labels)
    limits.labels("contexts", contexts, most=limits.CONTEXT)
    at = now()
    event = pb.Event(
        id=wanted_id or new_id(),
        name=name,
        data=data,
        project_id=project_id,
        labels=labels,
        event_key=key_of(name, labels),
        contexts=contexts,
        trigger_commit_hash=trace.commit_hash if trace else "",
        status=pb.EVENT_NOT_HANDLED,
        status_description=_describe_waiting(data),
        created_at=at,
        updated_at=at,
    )

    async def work(transaction: Transaction) -> None:
        await stores.events.add_in(transaction, event)
        if trace is not None:
            await traces.keep_in(stores, transaction, project_id, event.id, trace, at)

    try:
        await stores.database.write(work)
    except ConflictError:
        if wanted_id is None:
            raise
        await stores.events.get(project_id, wanted_id)  # made by this call's first attempt
    return event.id


async def register_of_deployment(
    stores: Stores, agent: Agent, request: push_pb2.RegisterEventRequest, now: Now
) -> str:
    """Add an event because a deployment of this agent has succeeded; a repeat adds none.

    The author of an event that is refused reads that in the deployment's story, not in the log of
    an agent.
    """
    deployment = await own_deployment(stores.deployments, agent, request.deployment_id)
    try:
        return await register(
            stores,
            agent.project_id,
            name=request.name,
            data=request.data,
            labels=request.labels,
            contexts={
                "application": deployment.application_name,
                "commit": deployment.trigger.commit.hash,
                "deployment": deployment.id,
            },
            trace=None,
            now=now,
            wanted_id=str(uuid.uuid5(OF_DEPLOYMENT, f"{deployment.id}/{request.number}")),
        )
    except ConfigError as refused:
        name = request.name[:SHOWN_NAME]
        sentence = f"the event {name!r} was not registered: {refused.with_hint()}"
        await stage_actions.note_refusal(stores, deployment, sentence)
        raise


async def find_latest(
    stores: Stores, project_id: str, name: str, labels: Mapping[str, str]
) -> pb.Event:
    """Returns the newest event with this name and labels.

    Raises NotFoundError when there is none, which agents expect at their first look.
    """
    event = await stores.events.latest(project_id, name, key_of(name, labels))
    if event is None:
        raise NotFoundError(f"there is no event {name!r} with these labels")
    return event


async def report(
    stores: Stores,
    project_id: str,
    reported: Iterable[pipedservice.ReportEventStatusesRequest.Event],
    now: Now,
) -> None:
    """Apply the statuses that a piped reports: all of them, or none when an event is missing."""
    reports = list(reported)

    async def work(transaction: Transaction) -> None:
        for each in reports:
            await stores.events.update_in(transaction, project_id, each.id, _edit(each, now()))

    await stores.database.write(work)


def _edit(
    report: pipedservice.ReportEventStatusesRequest.Event, now: int
) -> Callable[[pb.Event], None]:
    def edit(event: pb.Event) -> None:
        moves = report.status in HANDLED or event.status not in HANDLED
        if not moves or (report.status == pb.EVENT_NOT_HANDLED != event.status):
            return  # late: what came of it is known already
        if (event.status, event.status_description) == (report.status, report.status_description):
            return
        event.status = report.status
        event.status_description = report.status_description
        if report.status in HANDLED:
            event.handled_at = now

    return edit
