# SPDX-License-Identifier: Apache-2.0
"""`pipectl chain` with a real control plane and a real piped, by API key and by session."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.pipectl_site import run_in_terminal
from pipecd_test_support.piped_site import (
    BIN,
    LIMIT,
    PipedSite,
    ServerProcess,
    SiteClient,
    register_site,
)
from pipecd_test_support.typed_terminal import COLUMNS
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.rpc import call

FOLLOWS: dict[str, Any] = {"onCommit": {"disabled": True}, "onChain": {"disabled": False}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    folder = tmp_path_factory.mktemp("server")
    made = ServerProcess(folder)
    made.start()
    yield made, folder
    made.stop()


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, server: tuple[ServerProcess, Path]
) -> Iterator[PipedSite]:
    made = register_site(tmp_path_factory.mktemp("agent"), server[0])
    made.commit({"README": "an example"})
    made.configure("scriptrun")
    made.start()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory, server: tuple[ServerProcess, Path]
) -> dict[str, str]:
    """The environment of somebody who has signed in."""
    home = tmp_path_factory.mktemp("home")
    clean = {name: each for name, each in os.environ.items() if not name.startswith("PIPECTL_")}
    environment = {**clean, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    password = (server[1] / "data" / "admin.password").read_text()
    login = ["login", f"http://{server[0].address}", "--username", "admin", "--password-stdin"]
    subprocess.run(
        [BIN / "pipectl", *login],
        env=environment,
        input=password,
        text=True,
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    return environment


def run_signed_in(session: dict[str, str], *arguments: str) -> str:
    return subprocess.run(
        [BIN / "pipectl", *arguments],
        env=session,
        text=True,
        check=True,
        capture_output=True,
        timeout=LIMIT,
    ).stdout


async def begin_chain(
    site: PipedSite, client: SiteClient, prefix: str, script: str
) -> list[pb.Deployment]:
    """Begin a chain of two applications; returns their deployments."""
    names = [f"{prefix}-first", f"{prefix}-second"]
    stages = [{"name": "SCRIPT_RUN", "with": {"run": script}}]
    chain = {"chain": {"applications": [{"name": names[1]}, {"name": f"{prefix}-nobody"}]}}
    site.commit_application(names[0], stages, postSync=chain)
    quick = [{"name": "SCRIPT_RUN", "with": {"run": "true"}}]
    site.commit_application(names[1], quick, trigger=FOLLOWS)
    ids = [await client.register(name) for name in names]
    await call(client.api.SyncApplication, external.SyncApplicationRequest(application_id=ids[0]))
    found: list[pb.Deployment] = []
    for application_id in ids:
        request = external.ListDeploymentsRequest(application_ids=[application_id], limit=1)

        async def ask(
            wanted: external.ListDeploymentsRequest = request,
        ) -> external.ListDeploymentsResponse:
            return await call(client.api.ListDeployments, wanted)

        found += (await wait_answer(ask, lambda it: bool(it.deployments))).deployments
    return found


async def wait_said(site: PipedSite, text: str, *arguments: str) -> str:
    """Run pipectl until it says something."""
    return await wait_answer(
        lambda: asyncio.to_thread(site.pipectl, *arguments), lambda it: text in it
    )


async def test_a_chain_that_waits_says_for_what(site: PipedSite, session: dict[str, str]) -> None:
    gate = site.folder / "gate"
    async with site.client() as client:
        first, second = await begin_chain(
            site, client, "waits", f"while [ ! -e {gate} ]; do sleep 0.05; done"
        )
        chain_id = first.deployment_chain_id
        got = await wait_said(site, "block 1 of a chain", "chain", "get", chain_id, "-o", "wide")
        listed = site.pipectl("chain", "list", "-o", "wide")
        by_name = site.pipectl("chain", "get", "waits-second", "-o", "json")
        signed_in = run_signed_in(session, "chain", "get", chain_id[:8], "-o", "json")
        shown = run_in_terminal(
            ["setsid", "--ctty", "--wait", BIN / "pipectl", "chain", "get", "waits-first"],
            env=session,
        )
        gate.touch()
        await client.completed(second.id)
    done = await wait_said(site, "SUCCESS", "chain", "get", chain_id, "-o", "table")

    assert "chain  RUNNING" in got
    assert "block 0: waits-first RUNNING" in listed
    assert "waits-first > waits-second > -" in listed
    assert [line.split()[:5] for line in got.splitlines()[-3:]] == [
        ["0", "RUNNING", "waits-first", first.id, "RUNNING"],
        ["1", "PENDING", "waits-second", second.id, "PENDING"],
        ["2", "PENDING", "-", "-", "-"],
    ]
    assert "no application matched" in got
    for data in (json.loads(by_name), json.loads(signed_in)):
        assert data["chain"]["id"] == chain_id
        assert data["chain"]["status_name"] == "RUNNING"
        assert data["chain"]["blocks"][0]["status_name"] == "RUNNING"
    assert shown.code == 0
    assert all(len(line) <= COLUMNS for line in shown.text.splitlines())
    assert "waits-second" in shown.text
    assert "3/3" in done


async def test_a_chain_that_ended_says_why(site: PipedSite, session: dict[str, str]) -> None:
    async with site.client() as client:
        first, second = await begin_chain(site, client, "fails", "exit 3")
        await client.completed(second.id)
    chain_id = first.deployment_chain_id

    listed = site.pipectl("chain", "list", "-o", "table")
    names = run_signed_in(session, "chain", "list", "-o", "name").split()
    data = run_signed_in(session, "chain", "list", "-o", "yaml", "--limit", "1")
    got = site.pipectl("chain", "get", "fails-second", "-o", "table")

    assert "FAILURE" in listed
    assert "block 0: fails-first FAILURE: SCRIPT_RUN" in listed
    assert names[0] == chain_id
    assert f"id: {chain_id}" in data
    assert "cursor: " in data or len(names) == 1
    assert "block 0 of its chain failed at fails-first" in got


def test_a_chain_that_is_not_there_is_named(site: PipedSite) -> None:
    said = site.pipectl("chain", "get", "nobody", code=4)
    missing = site.pipectl("chain", "get", "00000000-0000-4000-8000-000000000000", code=4)

    assert "there is no chain 'nobody'" in said
    assert "`pipectl chain list` shows what there is" in said
    assert "deployment chain" in missing
