# SPDX-License-Identifier: Apache-2.0
"""Chains with real processes: one application after the other, and what ends a chain."""

import json
import signal
from typing import Any

import pytest

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call

FOLLOWS = {"onCommit": {"disabled": True}, "onChain": {"disabled": False}}


def script(text: str) -> list[dict[str, Any]]:
    return [{"name": "SCRIPT_RUN", "with": {"run": text}}]


def begins(*names: str) -> dict[str, Any]:
    """The settings of an application that others follow, one after the other."""
    return {"postSync": {"chain": {"applications": [{"name": name} for name in names]}}}


async def sync(client: SiteClient, application_id: str) -> None:
    request = external.SyncApplicationRequest(application_id=application_id)
    await call(client.api.SyncApplication, request)


async def find_deployment(client: SiteClient, application_id: str) -> pb.Deployment:
    """Waits for the first deployment of an application."""
    request = external.ListDeploymentsRequest(application_ids=[application_id], limit=10)
    answer = await wait_answer(
        lambda: call(client.api.ListDeployments, request), lambda it: bool(it.deployments)
    )
    return answer.deployments[-1]


async def test_each_block_begins_when_the_one_before_it_has_succeeded(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    record, gate = shared_site.folder / "chain", shared_site.folder / "gate"
    shared_site.commit_application(
        "c-first",
        script(f"while [ ! -e {gate} ]; do sleep 0.05; done; echo first >> {record}"),
        **begins("c-second", "c-third"),
    )
    for name in ("second", "third"):
        shared_site.commit_application(
            f"c-{name}", script(f"echo {name} >> {record}"), trigger=FOLLOWS
        )
    ids = [await shared_client.register(f"c-{name}") for name in ("first", "second", "third")]

    await sync(shared_client, ids[0])
    first, second, third = [await find_deployment(shared_client, each) for each in ids]
    request = own.ExplainWaitRequest(deployment_id=third.id)
    answer = await wait_answer(
        lambda: call(shared_client.deployments.ExplainWait, request),
        lambda it: own.Wait.CHAIN in [each.kind for each in it.waits_for],
    )
    assert "block 2 of a chain" in answer.waits_for[0].sentence
    assert not record.exists()
    gate.touch()
    ended = [await shared_client.completed(each.id) for each in (first, second, third)]

    assert [each.status for each in ended] == 3 * [pb.DEPLOYMENT_SUCCESS]
    assert record.read_text().split() == ["first", "second", "third"]
    assert len({each.deployment_chain_id for each in ended}) == 1
    assert [each.deployment_chain_block_index for each in ended] == [0, 1, 2]


async def test_a_failure_ends_the_chain_with_a_sentence(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    shared_site.commit_application("f-first", script("exit 3"), **begins("f-second"))
    shared_site.commit_application("f-second", script("true"), trigger=FOLLOWS)
    ids = [await shared_client.register(f"f-{name}") for name in ("first", "second")]

    await sync(shared_client, ids[0])
    second = await find_deployment(shared_client, ids[1])
    ended = await shared_client.completed(second.id)

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert ended.status_reason.startswith("block 0 of its chain failed at f-first: SCRIPT_RUN")
    assert not ended.stages


async def test_one_that_follows_no_chains_ends_it_with_the_reason(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    shared_site.commit_application("n-first", script("true"), **begins("n-second", "n-third"))
    shared_site.commit_application("n-second", script("true"))
    shared_site.commit_application("n-third", script("true"), trigger=FOLLOWS)
    ids = [await shared_client.register(f"n-{name}") for name in ("first", "second", "third")]

    await sync(shared_client, ids[0])
    third = await find_deployment(shared_client, ids[2])
    ended = await shared_client.completed(third.id)

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert "block 1 of its chain was cancelled at n-second" in ended.status_reason
    assert "`trigger.onChain.disabled: false`" in ended.status_reason


async def test_a_success_registers_its_events(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    commit = shared_site.commit_application(
        "e-app",
        script("true"),
        postSync={
            "events": [{"name": "deployed", "labels": {"env": "dev"}, "data": "at {{ .commit }}"}]
        },
    )
    application_id = await shared_client.register("e-app")

    await sync(shared_client, application_id)
    done = await shared_client.completed((await find_deployment(shared_client, application_id)).id)

    assert done.status == pb.DEPLOYMENT_SUCCESS, done.status_reason
    request = pipedservice.GetLatestEventRequest(name="deployed", labels={"env": "dev"})
    event = (await call(shared_client.agent.GetLatestEvent, request)).event
    assert event.data == f"at {commit}"
    assert dict(event.contexts) == {
        "application": "e-app",
        "commit": commit,
        "deployment": done.id,
    }


async def test_a_failure_registers_nothing(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    shared_site.commit_application(
        "e-fails", script("false"), postSync={"events": [{"name": "never"}]}
    )
    application_id = await shared_client.register("e-fails")

    await sync(shared_client, application_id)
    await shared_client.completed((await find_deployment(shared_client, application_id)).id)

    request = pipedservice.GetLatestEventRequest(name="never")
    with pytest.raises(CallError) as caught:
        await call(shared_client.agent.GetLatestEvent, request)
    assert caught.value.status == "NOT_FOUND"


async def test_a_piped_that_dies_while_a_block_waits_goes_on_with_it(site: PipedSite) -> None:
    record, gate = site.folder / "record", site.folder / "gate"
    site.configure("scriptrun")
    site.commit_application(
        "first",
        script(f"while [ ! -e {gate} ]; do sleep 0.05; done; echo first >> {record}"),
        **begins("second"),
    )
    site.commit_application("second", script(f"echo second >> {record}"), trigger=FOLLOWS)
    site.start()
    async with site.client() as client:
        ids = [await client.register("first"), await client.register("second")]
        await sync(client, ids[0])
        first, second = [await find_deployment(client, each) for each in ids]
        await client.stage_running(first.id, 0)

        site.signal(signal.SIGKILL)
        await site.ended()
        gate.touch()
        site.start()
        ended = [await client.completed(each.id) for each in (first, second)]

    assert [each.status for each in ended] == 2 * [pb.DEPLOYMENT_SUCCESS]
    assert record.read_text().split() == ["first", "second"]


async def test_what_is_out_of_sync_is_brought_back(site: PipedSite) -> None:
    target = site.folder / "www"
    site.configure(
        {"name": "files", "deployTargets": [{"name": "web", "config": {"path": str(target)}}]}
    )
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {
            "name": "page",
            "trigger": {"onOutOfSync": {"disabled": False, "minWindow": "1s"}},
            "plugins": {"files": {"source": "public"}},
        },
    }
    site.commit({"page/app.pipecd.yaml": json.dumps(document), "page/public/index.html": "git\n"})
    site.start("--live-state-interval", "1s")
    async with site.client() as client:
        application_id = await client.register("page", files=["web"])
        first = await client.completed((await find_deployment(client, application_id)).id)
        assert first.status == pb.DEPLOYMENT_SUCCESS, first.status_reason

        page = target / "current" / "index.html"
        page.write_text("somebody\n")
        request = external.ListDeploymentsRequest(application_ids=[application_id], limit=10)
        listed = await wait_answer(
            lambda: call(client.api.ListDeployments, request), lambda it: len(it.deployments) > 1
        )
        [repair] = [each for each in listed.deployments if each.id != first.id]
        repaired = await client.completed(repair.id)

    assert repaired.status == pb.DEPLOYMENT_SUCCESS, repaired.status_reason
    assert repaired.trigger.commit.hash == first.trigger.commit.hash
    assert page.read_text() == "git\n"
