# SPDX-License-Identifier: Apache-2.0
"""Events from the program that registers them to the piped that handles them, over the wire."""

import hashlib
from contextlib import aclosing
from typing import Any

import pytest

from pipecd_controlplane.store.events import EventFilter
from pipecd_controlplane.usecases import traces
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import event_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import call, stream


async def register(plane: ServedControlPlane, name: str = "image", **fields: Any) -> str:
    request = apiservice.RegisterEventRequest(name=name, **{"data": "v1", **fields})
    return str((await call(plane.admin.api.RegisterEvent, request)).event_id)


def report(
    event_id: str, status: event_pb2.EventStatus.ValueType, text: str = "done"
) -> pb.ReportEventStatusesRequest:
    return pb.ReportEventStatusesRequest(
        events=[
            pb.ReportEventStatusesRequest.Event(id=event_id, status=status, status_description=text)
        ]
    )


async def test_there_is_no_latest_event_at_first(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    error = await call_refused(agent.service.GetLatestEvent, pb.GetLatestEventRequest(name="image"))

    assert error.status == "NOT_FOUND"


async def test_the_newest_event_of_a_name_and_labels_is_the_latest(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    await register(plane, labels={"app": "a", "env": "dev"})
    await plane.other_project()
    newest = plane.build.NOON * 2  # whatever the clock says
    one = await register(plane, labels={"env": "dev", "app": "a"}, data="v2")

    def later(event: event_pb2.Event) -> None:
        event.created_at = newest

    await plane.stores.events.update("default", one, later)
    await register(plane, labels={"app": "b"})

    answer = await call(
        agent.service.GetLatestEvent,
        pb.GetLatestEventRequest(name="image", labels={"app": "a", "env": "dev"}),
    )

    assert (answer.event.id, answer.event.data) == (one, "v2")
    assert answer.event.event_key == hashlib.sha256(b"image/app:a/env:dev").hexdigest()
    assert answer.event.status == event_pb2.EVENT_NOT_HANDLED
    assert answer.event.status_description == f"It is going to be replaced by {answer.event.data}"


async def test_an_event_without_labels_has_the_key_of_its_name(plane: ServedControlPlane) -> None:
    event = await plane.stores.events.get("default", await register(plane))

    assert event.event_key == hashlib.sha256(b"image").hexdigest()


async def test_events_are_listed_by_time_and_status_in_either_order(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    ids = []
    for number in range(4):
        ids.append(await register(plane, name=f"e{number}"))

        def at(event: event_pb2.Event, number: int = number) -> None:
            event.created_at = 1000 + number

        await plane.stores.events.update("default", ids[-1], at)
    await call(agent.service.ReportEventStatuses, report(ids[1], event_pb2.EVENT_SUCCESS))

    async def listed(**fields: Any) -> list[str]:
        answer = await call(agent.service.ListEvents, pb.ListEventsRequest(**fields))
        return [event.id for event in answer.events]

    status = pb.ListEventsRequest
    assert await listed() == ids
    assert await listed(order=pb.DESC) == ids[::-1]
    assert await listed(**{"from": 1001, "to": 1003}) == ids[1:3]
    assert await listed(status=status.NOT_HANDLED) == [ids[0], ids[2], ids[3]]
    assert await listed(status=status.SUCCESS, order=pb.DESC) == [ids[1]]


async def test_an_outcome_is_kept_and_a_late_report_takes_nothing_back(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    event_id = await register(plane)
    service = agent.service

    await call(service.ReportEventStatuses, report(event_id, event_pb2.EVENT_SUCCESS, "replaced"))
    handled = await plane.stores.events.get("default", event_id)
    await call(service.ReportEventStatuses, report(event_id, event_pb2.EVENT_SUCCESS, "replaced"))
    await call(service.ReportEventStatuses, report(event_id, event_pb2.EVENT_OUTDATED, "late"))
    await call(service.ReportEventStatuses, report(event_id, event_pb2.EVENT_NOT_HANDLED, "late"))

    assert (handled.status, handled.status_description) == (event_pb2.EVENT_SUCCESS, "replaced")
    assert handled.handled_at > 0
    assert await plane.stores.events.get("default", event_id) == handled


async def test_an_outdated_event_was_not_handled(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    event_id = await register(plane)

    await call(agent.service.ReportEventStatuses, report(event_id, event_pb2.EVENT_OUTDATED))

    event = await plane.stores.events.get("default", event_id)
    assert (event.status, event.handled_at) == (event_pb2.EVENT_OUTDATED, 0)


async def test_events_of_another_project_are_out_of_reach(plane: ServedControlPlane) -> None:
    """And a report about several takes effect for all or for none."""
    stranger = await plane.agent(await plane.other_project())
    own = await plane.agent()
    event_id = await register(plane)
    both = report(event_id, event_pb2.EVENT_FAILURE)
    both.MergeFrom(report("unknown", event_pb2.EVENT_FAILURE))

    foreign = await call_refused(
        stranger.service.ReportEventStatuses, report(event_id, event_pb2.EVENT_FAILURE)
    )
    partly = await call_refused(own.service.ReportEventStatuses, both)
    listed = await call(stranger.service.ListEvents, pb.ListEventsRequest())

    assert (foreign.status, partly.status) == ("NOT_FOUND", "NOT_FOUND")
    assert list(listed.events) == []
    event = await plane.stores.events.get("default", event_id)
    assert event.status == event_pb2.EVENT_NOT_HANDLED


async def test_a_repeated_registration_makes_one_event_and_one_trace(
    plane: ServedControlPlane,
) -> None:
    user = await plane.user(plane.admin.key, extra=[("pipecd-idempotency-key", "once")])
    request = apiservice.RegisterEventRequest(
        name="image", data="v1", commit_hash="feed", commit_url="https://x/feed", commit_title="t"
    )

    first = await call(user.api.RegisterEvent, request)
    second = await call(user.api.RegisterEvent, request)

    assert first.event_id == second.event_id
    page = await plane.stores.events.page("default", EventFilter(), limit=0, cursor="")
    assert [event.trigger_commit_hash for event in page.items] == ["feed"]
    traced = await traces.list_traces(plane.stores, "default", limit=0, cursor="")
    assert [each.trace.title for each in traced.items] == ["t"]


async def test_a_trace_leads_to_the_deployments_of_its_own_project(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(agent, application_id, "ours", deployment_trace_commit_hash="feed")
    theirs = await plane.other_project()
    other = await plane.agent(theirs)
    other_application = await plane.application(other, theirs)
    await plane.deployment(
        other, other_application, "d2", project_id="theirs", deployment_trace_commit_hash="feed"
    )
    await register(plane, commit_hash="feed", commit_url="https://x/feed")
    await register(plane, commit_hash="dead", commit_url="https://x/dead")

    found = await traces.list_traces(
        plane.stores, "default", commit_hash="feed", limit=10, cursor=""
    )
    all_of_them = await traces.list_traces(plane.stores, "default", limit=1, cursor="")

    assert [[d.id for d in each.deployments] for each in found.items] == [["ours"]]
    assert found.items[0].trace.commit_timestamp > 0
    assert (len(all_of_them.items), bool(all_of_them.cursor)) == (1, True)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"data": "x" * 70_000}, "data: 70000 characters, at most 65536"),
        ({"labels": {f"k{n}": "v" for n in range(65)}}, "labels: 65 of them, at most 64"),
        ({"labels": {"k": "v" * 501}}, "labels: the value of 'k'"),
        ({"contexts": {"bad key": "v"}}, "contexts"),
    ],
)
async def test_what_is_too_large_is_refused_with_its_name(
    plane: ServedControlPlane, fields: dict[str, Any], named: str
) -> None:
    request = apiservice.RegisterEventRequest(name="image", **{"data": "v", **fields})

    error = await call_refused(plane.admin.api.RegisterEvent, request)

    assert error.status == "INVALID_ARGUMENT"
    assert "invalid request: " in error.message
    assert named in error.message


async def test_more_events_than_an_agent_takes_are_cut_at_the_far_end(
    plane: ServedControlPlane,
) -> None:
    ids = [await register(plane, data="x" * 1000) for _ in range(4)]
    page = await plane.stores.events.page("default", EventFilter(), limit=0, cursor="")
    size = page.items[0].ByteSize()

    found = await plane.stores.events.for_agent(
        "default", start=0, end=0, status=None, oldest_first=False, max_bytes=2 * size + 10
    )

    assert [event.id for event in found] == [event.id for event in page.items[:2]]
    assert len(ids) == 4


async def test_traces_with_large_deployments_come_in_more_pages(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    for number in range(3):
        commit = f"feed{number}"
        await register(plane, commit_hash=commit, commit_url="https://x")
        await plane.deployment(
            agent,
            application_id,
            f"d{number}",
            deployment_trace_commit_hash=commit,
            summary="x" * 2_000_000,
        )

    found, cursor, pages = [], "", 0
    while True:
        page = await traces.list_traces(plane.stores, "default", limit=10, cursor=cursor)
        found += [each.deployments[0].id for each in page.items]
        cursor, pages = page.cursor, pages + 1
        if not cursor:
            break

    assert sorted(found) == ["d0", "d1", "d2"]
    assert pages == 3


async def test_people_who_watch_hear_of_events_traces_and_chains(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    heard: set[int] = set()
    async with aclosing(
        stream(plane.admin.project.WatchChanges, api_pb2.WatchChangesRequest())
    ) as changes:
        await soon(anext(changes))
        await register(plane, commit_hash="feed", commit_url="https://x")
        await call(
            agent.service.CreateDeploymentChain,
            pb.CreateDeploymentChainRequest(
                first_deployment=plane.build.deployment(
                    application_id=application_id, piped_id=agent.id, project_id="default"
                )
            ),
        )
        wanted = {
            api_pb2.Change.EVENT,
            api_pb2.Change.DEPLOYMENT_TRACE,
            api_pb2.Change.DEPLOYMENT_CHAIN,
        }
        while not wanted <= heard:
            message = await soon(anext(changes))
            heard |= {change.kind for change in message.changes}


async def test_an_event_of_a_deployment_that_is_refused_is_told_in_its_story(
    plane: ServedControlPlane,
) -> None:
    """An agent with other limits than ours sends it all the same."""
    agent = await plane.agent()
    await plane.deployment(agent, await plane.application(agent), "d1")
    request = push_pb2.RegisterEventRequest(deployment_id="d1", name="big", data="x" * 70_000)

    for _ in range(2):
        error = await call_refused(agent.push.RegisterEvent, request)
        assert error.status == "INVALID_ARGUMENT"

    wanted = api_pb2.GetDeploymentRecordRequest(deployment_id="d1")
    record = (await call(plane.admin.deployments.GetDeploymentRecord, wanted)).record
    assert list(record.refusals) == [
        "the event 'big' was not registered: invalid request: data: 70000 characters, at most 65536"
    ]
