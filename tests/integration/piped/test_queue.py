# SPDX-License-Identifier: Apache-2.0
"""The queue of real processes: what takes whose place, what waits for what, also across a death."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.rpc import call

LIMIT = 60
ON_COMMIT: Mapping[str, Any] = {"onCommit": {}}
APPROVAL = {"name": "WAIT_APPROVAL"}


def script(record: Path, name: str, gate: Path | None = None) -> dict[str, Any]:
    """A script that writes down that it began and that it ended, and waits for a file."""
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done\n" if gate is not None else ""
    run = f"echo {name} began >> {record}\n{wait}echo {name} ended >> {record}\n"
    undo = f"echo {name} undone >> {record}\n"
    return {"name": "SCRIPT_RUN", "with": {"run": run, "onRollback": undo}}


async def until(holds: Callable[[], bool], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.02)


async def find_deployment(client: SiteClient, application_id: str, commit: str) -> str:
    """Wait until a commit of an application has a deployment; returns its id."""
    request = api.ListDeploymentsRequest(application_ids=[application_id], limit=50)
    async with asyncio.timeout(LIMIT):
        while True:
            for each in (await call(client.api.ListDeployments, request)).deployments:
                if each.trigger.commit.hash == commit:
                    return each.id
            await asyncio.sleep(0.05)  # between looks at another process


async def find_queued(client: SiteClient, deployment_id: str) -> own.ListQueueResponse.Item:
    """Wait until the agent has reported what a deployment waits for."""
    async with asyncio.timeout(LIMIT):
        while True:
            answer = await call(client.deployments.ListQueue, own.ListQueueRequest())
            for each in answer.items:
                if each.queued.deployment_id == deployment_id:
                    return each
            await asyncio.sleep(0.05)  # between looks at another process


async def restart_by_death(site: PipedSite) -> None:
    """End piped at once, with all it has started but its scripts, and start it again."""
    os.killpg(site.pid, signal.SIGKILL)
    await site.ended()
    site.start()


@pytest.mark.parametrize("dies", [False, True])
async def test_a_newer_commit_takes_the_place_of_one_that_waits_for_approval(
    site: PipedSite, client: SiteClient, dies: bool
) -> None:
    spec: dict[str, Any] = {"trigger": ON_COMMIT, "queue": {"mode": "supersede"}}
    first = site.commit_application("web", [script(site.record, "one"), APPROVAL], **spec)
    site.configure("scriptrun", "waitapproval")
    site.start()
    application_id = await client.register("web")
    old = await find_deployment(client, application_id, first)
    await client.stage_running(old, 1)
    if dies:
        os.killpg(site.pid, signal.SIGKILL)
        await site.ended()
    second = site.commit({"web/x": "2"})
    if dies:
        site.start()

    newer = await find_deployment(client, application_id, second)
    ended = await client.completed(old)
    await client.stage_running(newer, 1)

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert ended.status_reason == (
        f"superseded by the deployment {newer} of {second[:7]} during WAIT_APPROVAL; rolled back"
    )
    assert site.records() == ["one began", "one ended", "one undone", "one began", "one ended"]


async def test_what_waits_is_replaced_and_a_script_comes_to_its_end_first(
    site: PipedSite, client: SiteClient
) -> None:
    gate = site.folder / "gate"
    spec: dict[str, Any] = {"trigger": ON_COMMIT, "queue": {"mode": "supersede"}}
    stages = [script(site.record, "one", gate), script(site.record, "two")]
    first = site.commit_application("web", stages, **spec)
    site.configure("scriptrun")
    site.start()
    application_id = await client.register("web")
    old = await find_deployment(client, application_id, first)
    await until(lambda: site.records() == ["one began"], site)
    waiting = await find_deployment(client, application_id, site.commit({"web/x": "2"}))
    queued = (await find_queued(client, waiting)).queued
    assert (queued.cause, queued.other_deployment_id) == (QueuedDeployment.OTHER_DEPLOYMENT, old)

    newest = await find_deployment(client, application_id, site.commit({"web/x": "3"}))
    replaced = await client.completed(waiting)
    assert site.records() == ["one began"]
    gate.touch()
    ended, done = await client.completed(old), await client.completed(newest)

    assert replaced.status_reason.startswith(f"superseded by the deployment {newest} of")
    assert replaced.status_reason.endswith("before it began")
    assert ended.status_reason.endswith("before SCRIPT_RUN; rolled back")
    assert done.status == pb.DEPLOYMENT_SUCCESS
    both = ["one began", "one ended", "two began", "two ended"]
    assert site.records() == ["one began", "one ended", "one undone", *both]


async def test_a_rejected_commit_says_so_and_is_deployed_after_the_open_one(
    site: PipedSite, client: SiteClient
) -> None:
    spec: dict[str, Any] = {"trigger": ON_COMMIT, "queue": {"mode": "reject"}}
    first = site.commit_application("web", [APPROVAL], **spec)
    site.configure("waitapproval")
    site.start()
    application_id = await client.register("web")
    old = await find_deployment(client, application_id, first)
    stage = await client.stage_running(old, 0)
    second = site.commit({"web/x": "2"})
    request = api.GetApplicationRequest(application_id=application_id)

    async with asyncio.timeout(LIMIT):
        while True:
            state = (await call(client.api.GetApplication, request)).application.sync_state
            if second[:7] in state.reason:
                break
            await asyncio.sleep(0.05)  # between looks at another process
    await call(
        client.deployments.ApproveStage,
        own.ApproveStageRequest(deployment_id=old, stage_id=stage.id),
    )
    newer = await find_deployment(client, application_id, second)

    assert f"the deployment {old} is not completed" in state.reason
    listed = api.ListDeploymentsRequest(application_ids=[application_id], limit=50)
    found = (await call(client.api.ListDeployments, listed)).deployments
    assert {each.id for each in found} == {old, newer}


async def test_a_lock_is_held_across_the_death_of_piped(
    site: PipedSite, client: SiteClient
) -> None:
    gate = site.folder / "gate"
    spec: dict[str, Any] = {"trigger": ON_COMMIT, "queue": {"locks": ["db"]}}
    first = site.commit_application("one", [script(site.record, "one", gate)], **spec)
    site.configure("scriptrun")
    site.start()
    holder = await find_deployment(client, await client.register("one"), first)
    await until(lambda: site.records() == ["one began"], site)
    second = site.commit_application("two", [script(site.record, "two")], **spec)
    waiting = await find_deployment(client, await client.register("two"), second)
    queued = (await find_queued(client, waiting)).queued
    assert (queued.cause, queued.lock) == (QueuedDeployment.LOCK, "db")
    assert queued.other_deployment_id == holder

    await restart_by_death(site)
    # Registered after the restart: its deployment comes last, and shows that the others were seen.
    third = site.commit_application("free", [script(site.record, "free")], trigger=ON_COMMIT)
    await client.completed(await find_deployment(client, await client.register("free"), third))
    assert site.records() == ["one began", "free began", "free ended"]
    gate.touch()

    assert (await client.completed(holder)).status == pb.DEPLOYMENT_SUCCESS
    assert (await client.completed(waiting)).status == pb.DEPLOYMENT_SUCCESS
    assert site.records()[3:] == ["one ended", "two began", "two ended"]


async def test_the_limit_of_the_piped_file_is_kept_and_pipectl_shows_who_waits(
    site: PipedSite, client: SiteClient
) -> None:
    gate = site.folder / "gate"
    names = ["one", "two", "three"]
    for name in names:
        commit = site.commit_application(name, [script(site.record, name, gate)], trigger=ON_COMMIT)
    site.configure("scriptrun", limits={"deployments": 1})
    site.start()
    ids = {name: await client.register(name) for name in names[:1]}
    await until(lambda: site.records() == ["one began"], site)
    for name in names[1:]:
        ids[name] = await client.register(name)
        deployment_id = await find_deployment(client, ids[name], commit)
        await find_queued(client, deployment_id)

    shown = json.loads(site.pipectl("queue", "-o", "json"))
    why = site.pipectl("why", "three")
    listed = site.pipectl("deployment", "get", "three", "-o", "table")
    gate.touch()
    for name in names:
        done = await client.completed(await find_deployment(client, ids[name], commit))
        assert done.status == pb.DEPLOYMENT_SUCCESS

    assert [each["application_name"] for each in shown["items"]] == ["two", "three"]
    assert [each["queued"].get("position", 0) for each in shown["items"]] == [0, 1]
    sentence = "its piped runs 1 deployments, and at most 1 at once"
    assert sentence in why
    assert sentence in listed
    assert site.records() == [f"{name} {what}" for name in names for what in ("began", "ended")]


@pytest.mark.parametrize("dies", [False, True])
async def test_an_override_passes_an_older_one_which_is_never_deployed(
    site: PipedSite, client: SiteClient, dies: bool
) -> None:
    """The application is frozen, and a person lets the fix begin: what waited before it is over."""
    first = site.commit_application("web", [script(site.record, "web")], trigger=ON_COMMIT)
    site.configure("scriptrun")
    site.start()
    application_id = await client.register("web")
    await client.completed(await find_deployment(client, application_id, first))
    site.pipectl("application", "freeze", application_id, "--reason", "fair")
    second = site.commit({"web/x": "2"})
    older = await find_deployment(client, application_id, second)
    made = await client.until(older, lambda it: True)
    # Which of two in one second is the older one is not known to a piped that was restarted.
    await until(lambda: time.time() >= made.created_at + 1, site)
    third = site.commit({"web/x": "3"})
    newer = await find_deployment(client, application_id, third)
    behind = (await find_queued(client, newer)).queued
    assert (behind.cause, behind.other_deployment_id) == (QueuedDeployment.OTHER_DEPLOYMENT, older)

    if dies:
        os.killpg(site.pid, signal.SIGKILL)
        await site.ended()
    site.pipectl("window", "override", newer, "--reason", "the fix")
    if dies:
        site.start()
    done, ended = await client.completed(newer), await client.completed(older)
    site.pipectl("application", "unfreeze", application_id)
    fourth = site.commit({"web/x": "4"})
    last = await client.completed(await find_deployment(client, application_id, fourth))

    assert (done.status, last.status) == (pb.DEPLOYMENT_SUCCESS, pb.DEPLOYMENT_SUCCESS)
    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert ended.status_reason.startswith(
        f"superseded by the deployment {newer} of {third[:7]} (override by "
    )
    assert ended.status_reason.endswith(": the fix) before it began")
    assert site.records() == ["web began", "web ended"] * 3
