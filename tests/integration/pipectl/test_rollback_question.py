# SPDX-License-Identifier: Apache-2.0
"""The question of `pipectl application rollback`, in a terminal of 80 columns and without one."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pipecd_test_support.piped_site import (
    BIN,
    LIMIT,
    PipedSite,
    ServerProcess,
    SiteClient,
    register_site,
)
from pipecd_test_support.program_terminal import ProgramTerminal
from pipecd_test_support.typed_terminal import COLUMNS
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

QUESTION = "Roll shop back? [y/N]:"
LONG = "a message that is much longer than a terminal of eighty columns is wide, on purpose"


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


@pytest.fixture(scope="module")
def application(site: PipedSite) -> str:
    """An application with two successful deployments; returns its id."""

    async def deploy() -> str:
        async with site.client() as client:
            commit = commit_version(site, "one")
            application_id = await client.register("shop")
            await wait_deployed(client, application_id, commit)
            await wait_deployed(client, application_id, commit_version(site, "two"))
            return application_id

    return asyncio.run(deploy())


@pytest.fixture
async def client(site: PipedSite) -> AsyncIterator[SiteClient]:
    async with site.client() as made:
        yield made


def commit_version(site: PipedSite, word: str) -> str:
    stages = [{"name": "SCRIPT_RUN", "with": {"run": f"echo {word} >> {site.folder / 'shop'}"}}]
    return site.commit_application("shop", stages, trigger={})


async def wait_deployed(client: SiteClient, application_id: str, commit: str) -> None:
    request = external.ListDeploymentsRequest(application_ids=[application_id], limit=10)

    def is_done(answer: Any) -> bool:
        return any(
            each.trigger.commit.hash == commit and each.status == pb.DEPLOYMENT_SUCCESS
            for each in answer.deployments
        )

    await wait_answer(lambda: call(client.api.ListDeployments, request), is_done)


async def is_pinned(client: SiteClient, application_id: str) -> bool:
    request = own.GetApplicationControlRequest(application_id=application_id)
    found = await call(client.applications.GetApplicationControl, request)
    return found.control.HasField("pin")


def ask(site: PipedSite) -> ProgramTerminal:
    return ProgramTerminal(
        [BIN / "pipectl", "application", "rollback", "shop", "--reason", LONG],
        cwd=site.folder,
        env={
            "PIPECTL_ADDRESS": site.server.address,
            "PIPECTL_API_KEY": site.server.admin_key,
            "PIPECTL_INSECURE": "1",
        },
    )


def pipe_yes(site: PipedSite) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [BIN / "pipectl", "application", "rollback", "shop"],
        env={
            "PIPECTL_ADDRESS": site.server.address,
            "PIPECTL_API_KEY": site.server.admin_key,
            "PIPECTL_INSECURE": "1",
        },
        input="y\n",
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.mark.parametrize("answer", ["n\n", "\n", "no\n"])
async def test_no_changes_nothing(
    site: PipedSite, client: SiteClient, application: str, answer: str
) -> None:
    with ask(site) as terminal:
        await asyncio.to_thread(terminal.wait_for, QUESTION)
        shown = terminal.shown
        terminal.enter(answer)
        code = await asyncio.to_thread(terminal.ended)
        after = terminal.shown

    assert "shop  roll back" in shown
    assert "shop/app.pipecd.yaml" in shown
    assert all(len(line) <= COLUMNS for line in shown.splitlines())
    assert code == 1
    assert "error: nothing was changed" in after
    assert not await is_pinned(client, application)


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["ctrl-c", "ctrl-d"])
async def test_leaving_the_question_changes_nothing(
    site: PipedSite, client: SiteClient, application: str, keys: str
) -> None:
    with ask(site) as terminal:
        await asyncio.to_thread(terminal.wait_for, QUESTION)
        terminal.enter(keys)
        code = await asyncio.to_thread(terminal.ended)
        shown = terminal.shown

    assert code == 130, shown
    assert shown.rstrip().endswith("interrupted"), shown
    assert not await is_pinned(client, application)


async def test_what_is_neither_yes_nor_no_is_asked_again_and_yes_rolls_back(
    site: PipedSite, client: SiteClient, application: str
) -> None:
    with ask(site) as terminal:
        await asyncio.to_thread(terminal.wait_for, QUESTION)
        terminal.enter("perhaps\n")
        await asyncio.to_thread(terminal.wait_for, QUESTION, times=2)
        assert not await is_pinned(client, application)
        terminal.enter("y\n")
        code = await asyncio.to_thread(terminal.ended)
        shown = terminal.shown

    assert code == 0, shown
    assert "newer commits wait until: pipectl application release shop" in shown
    assert await is_pinned(client, application)
    site.pipectl("application", "release", "shop")


async def test_without_a_terminal_nobody_is_asked(
    site: PipedSite, client: SiteClient, application: str
) -> None:
    """An answer in a pipe is not an answer: who pipes says --yes."""
    done = await asyncio.to_thread(pipe_yes, site)

    assert done.returncode == 2
    assert "there is no terminal to ask at; give --yes or --dry-run" in done.stderr
    assert not await is_pinned(client, application)
