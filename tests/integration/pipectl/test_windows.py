# SPDX-License-Identifier: Apache-2.0
"""`pipectl window` and `pipectl application freeze` with a real control plane and a real piped."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient, register_site
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.rpc import call

LIMIT = 60
ALWAYS = ("--start", "2020-01-01T00:00:00", "--for", "24h", "--rule", "FREQ=DAILY")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipedSite]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    made = register_site(tmp_path_factory.mktemp("agent"), server)
    made.commit({"README": "an example"})
    made.configure("scriptrun")
    made.start()
    try:
        yield made
    finally:
        made.close()
        server.stop()


async def run(site: PipedSite, *arguments: str, code: int = 0) -> str:
    return await asyncio.to_thread(site.pipectl, *arguments, code=code)


async def wait_for(site: PipedSite, holds: Callable[[str], bool], *arguments: str) -> str:
    """Runs pipectl until it says what it should."""
    async with asyncio.timeout(LIMIT):
        while True:
            said = await run(site, *arguments)
            if holds(said):
                return said


async def begin(site: PipedSite, client: SiteClient, name: str) -> pb.Deployment:
    """Asks for the first deployment of a new application, and waits until it is made."""
    record = site.folder / name
    stages = [{"name": "SCRIPT_RUN", "with": {"run": f"echo ran >> {record}"}}]
    site.commit_application(name, stages)
    application_id = await client.register(name)
    request = external.SyncApplicationRequest(application_id=application_id)
    await call(client.api.SyncApplication, request)
    listing = external.ListDeploymentsRequest(application_ids=[application_id], limit=10)
    async with asyncio.timeout(LIMIT):
        while True:
            found = (await call(client.api.ListDeployments, listing)).deployments
            if found:
                return found[0]
            await asyncio.sleep(0.05)  # another process makes it


async def test_a_deployment_waits_for_a_window_and_begins_when_it_goes(site: PipedSite) -> None:
    await run(site, "window", "set", "closed", "--deny", *ALWAYS, "--reason", "holidays")
    async with site.client() as client:
        made = await begin(site, client, "waits")
        said = await wait_for(site, lambda text: "closed" in text, "why", "waits")
        assert "(holidays)" in said
        assert site.records("waits") == []

        await run(site, "window", "delete", "closed")
        ended = await client.completed(made.id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records("waits") == ["ran"]


async def test_an_override_lets_one_begin_and_its_reason_is_kept(site: PipedSite) -> None:
    await run(site, "window", "stop", "--reason", "a fire")
    try:
        async with site.client() as client:
            made = await begin(site, client, "urgent")
            await wait_for(site, lambda text: "emergency stop" in text, "why", "urgent")
            assert "a fire" in await run(site, "window", "list", "--output", "table")

            await run(site, "window", "override", made.id, "--reason", "it puts the fire out")
            ended = await client.completed(made.id)
    finally:
        await run(site, "window", "resume")

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert "it puts the fire out" in await run(site, "audit", "list", "--output", "json")


async def test_a_frozen_application_waits_until_it_is_not(site: PipedSite) -> None:
    site.commit_application("frozen", [{"name": "SCRIPT_RUN", "with": {"run": "true"}}])
    async with site.client() as client:
        await client.register("frozen")
        await run(site, "application", "freeze", "frozen", "--reason", "an audit")
        made = await begin(site, client, "frozen-beside")
        await client.completed(made.id)  # others are not frozen
        await run(site, "application", "sync", "frozen")
        said = await wait_for(site, lambda text: "frozen by" in text, "why", "frozen")
        assert "an audit" in said

        await run(site, "application", "unfreeze", "frozen")
        listing = external.ListDeploymentsRequest(application_name="frozen", limit=10)
        (waited,) = (await call(client.api.ListDeployments, listing)).deployments
        ended = await client.completed(waited.id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason


async def test_windows_are_listed_and_previewed(site: PipedSite) -> None:
    nights = ("--start", "2026-11-16T22:00:00", "--for", "8h", "--rule", "FREQ=DAILY")
    zone = ("--zone", "Europe/Berlin", "--label", "env:prod")
    await run(site, "window", "set", "nights", "--deny", *nights, *zone)

    listed = json.loads(await run(site, "window", "list", "--output", "json"))
    (window,) = listed["windows"]
    assert (window["name"], window["time_zone"]) == ("nights", "Europe/Berlin")
    table = await run(site, "window", "list", "--output", "table")
    assert "FREQ=DAILY" in table
    preview: Any = json.loads(
        await run(
            site, "window", "preview", "--label", "env:prod", "--days", "3", "--output", "json"
        )
    )
    assert {bool(span.get("reason")) for span in preview["spans"]} == {True, False}
    free = json.loads(await run(site, "window", "preview", "--output", "json"))
    assert len(free["spans"]) == 1
    await run(site, "window", "delete", "nights")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("set", "x", *ALWAYS), 2, "give --allow or --deny"),
        (("set", "x", "--deny", *ALWAYS, "--zone", "Mars"), 2, "there is none called 'Mars'"),
        (("delete", "nobody"), 4, "there is no window 'nobody'"),
        (("stop",), 2, "Missing option '--reason'"),
    ],
)
async def test_what_cannot_be_is_said(
    site: PipedSite, arguments: tuple[str, ...], code: int, says: str
) -> None:
    assert says in await run(site, "window", *arguments, code=code)
