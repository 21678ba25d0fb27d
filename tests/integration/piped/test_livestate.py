# SPDX-License-Identifier: Apache-2.0
"""Live state and drift with real processes: the plugin `files`, and what people see of it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import application_pb2 as pb
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_SUCCESS
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import CallError, call

BIN = Path(sys.executable).parent
LIMIT = 60
LIVE = ["application", "get", "--live", "--output", "table"]


async def until(
    client: SiteClient, application_id: str, holds: Callable[[Application], bool]
) -> Application:
    request = api.GetApplicationRequest(application_id=application_id)
    async with asyncio.timeout(LIMIT):
        while True:
            found = (await call(client.api.GetApplication, request)).application
            if holds(found):
                return found
            await asyncio.sleep(0.05)  # between looks at another process


def pipectl(site: PipedSite, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [BIN / "pipectl", *arguments],
        env={
            **os.environ,
            "PIPECTL_ADDRESS": site.server.address,
            "PIPECTL_API_KEY": site.server.admin_key,
            "PIPECTL_INSECURE": "true",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


async def test_what_runs_and_what_drifted_is_shown(site: PipedSite) -> None:
    target = site.folder / "www"
    site.configure(
        {"name": "files", "deployTargets": [{"name": "web", "config": {"path": str(target)}}]}
    )
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {
            "name": "page",
            "trigger": {"onCommit": {"disabled": True}},
            "plugins": {"files": {"source": "public"}},
        },
    }
    commit = site.commit(
        {
            "page/app.pipecd.yaml": json.dumps(document),
            "page/public/index.html": "<h1>one</h1>\n",
        }
    )
    site.start()
    async with site.client() as client:
        application_id = await client.register("page", files=["web"])
        deployment_id = await client.deploy(
            "page",
            commit,
            application_id,
            targets={"files": ["web"]},
        )
        ended = await client.completed(deployment_id)
        assert ended.status == DEPLOYMENT_SUCCESS, ended.status_reason

        with site.explained():
            found = await until(
                client, application_id, lambda it: it.sync_state.status == pb.SYNCED
            )
        assert found.sync_state.head_deployment_id == deployment_id
        shown = pipectl(site, *LIVE, "--app-id", application_id)
        assert "index.html" in shown
        assert "healthy" in shown
        diff = pipectl(site, "application", "diff", "--app-id", application_id)
        assert "in sync" in diff

        # Somebody edits the page by hand, and piped is started again: it looks at once.
        (target / "current" / "index.html").write_text("<h1>two</h1>\n")
        await site.stop()
        site.start()
        with site.explained():
            found = await until(
                client, application_id, lambda it: it.sync_state.status == pb.OUT_OF_SYNC
            )
        diff = pipectl(site, "application", "diff", "--app-id", application_id, code=1)
        assert "index.html" in diff
        assert "<h1>two</h1>" in diff


async def test_a_branch_is_previewed_before_it_is_merged(site: PipedSite) -> None:
    site.configure(
        {
            "name": "files",
            "deployTargets": [{"name": "web", "config": {"path": str(site.folder / "www")}}],
        }
    )
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {"name": "page", "plugins": {"files": {"source": "public"}}},
    }
    site.commit(
        {
            "page/app.pipecd.yaml": json.dumps(document),
            "page/public/index.html": "<h1>one</h1>\n",
            "other/README": "nobody deploys this",
        }
    )
    site.start()
    async with site.client() as client:
        application_id = await client.register("page", files=["web"])
        await until(client, application_id, lambda it: it.sync_state.status == pb.SYNCED)

        site.git("switch", "--quiet", "--create", "redesign")
        change = site.commit({"page/public/index.html": "<h1>two</h1>\n"})
        site.git("switch", "--quiet", "main")
        site.commit({"other/README": "still nobody"})
        with site.explained():
            shown = preview(site, "redesign", change)
        assert "1 application would be deployed:" in shown
        assert "page [files] in page" in shown
        assert "-<h1>one</h1>" in shown
        assert "+<h1>two</h1>" in shown

        site.git("switch", "--quiet", "--create", "words", "main")
        unrelated = site.commit({"other/README": "yet again"})
        site.git("switch", "--quiet", "main")
        assert preview(site, "words", unrelated) == "the change touches no application\n"

        site.git("switch", "--quiet", "--create", "clash", "main")
        clash = site.commit({"other/README": "mine"})
        site.git("switch", "--quiet", "main")
        site.commit({"other/README": "yours"})
        shown = preview(site, "clash", clash, code=1)
        assert "both changed other/README" in shown


def preview(site: PipedSite, branch: str, commit: str, code: int = 0) -> str:
    flags = ["--repo-remote-url", str(site.repository), "--base-branch", "main"]
    flags += ["--head-branch", branch, "--head-commit", commit]
    return pipectl(site, "plan-preview", *flags, code=code)


async def test_nothing_is_known_of_an_application_that_only_runs_scripts(site: PipedSite) -> None:
    site.configure("scriptrun")
    commit = site.commit_application("job", [{"name": "SCRIPT_RUN", "with": {"run": "true"}}])
    site.start()
    async with site.client() as client:
        application_id = await client.register("job")
        await client.completed(await client.deploy("job", commit, application_id))
        person = client.applications
        request = own.GetLiveStateRequest(application_id=application_id)
        with pytest.raises(CallError) as refused:
            await call(person.GetLiveState, request)
        assert refused.value.status == "NOT_FOUND"
        shown = pipectl(site, *LIVE, "--app-id", application_id)
        assert "nothing is known yet" in shown


async def test_an_application_names_its_targets_in_its_file(site: PipedSite) -> None:
    """It was registered without any: its file alone says where it is deployed and looked at."""
    east, west = site.folder / "east", site.folder / "west"
    site.configure(
        {
            "name": "files",
            "deployTargets": [
                {"name": each.name, "config": {"path": str(each)}} for each in (east, west)
            ],
        }
    )
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {
            "name": "page",
            "plugins": {"files": {"source": "public"}},
            "deployTargets": {"files": ["west"]},
        },
    }
    site.commit(
        {
            "page/app.pipecd.yaml": json.dumps(document),
            "page/public/index.html": "<h1>one</h1>\n",
        }
    )
    site.start()
    async with site.client() as client:
        application_id = await client.register("page")
        with site.explained():
            await until(client, application_id, lambda it: it.sync_state.status == pb.SYNCED)
        shown = pipectl(site, *LIVE, "--app-id", application_id)

    assert "index.html" in shown
    assert (west / "current" / "index.html").read_text() == "<h1>one</h1>\n"
    assert not east.exists()
