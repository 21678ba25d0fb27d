# SPDX-License-Identifier: Apache-2.0
"""A resource is opened through everything: pipectl, control plane, piped and plugin."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pipecd_model.secrets import KeyPair, Sealer
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import application_pb2 as pb
from pipecd_wire.rpc import call

LIMIT_SECONDS = 60
SECRET = "open-sesame-thyself"  # noqa: S105 - of a test


async def wait_live(site: PipedSite, client: SiteClient, application_id: str) -> None:
    """Wait until the live state was reported, and with it the sync state."""
    request = api.GetApplicationRequest(application_id=application_id)
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            found = (await call(client.api.GetApplication, request)).application
            if found.sync_state.status in (pb.SYNCED, pb.OUT_OF_SYNC):
                return
            await asyncio.sleep(0.05)  # between looks at another process


@asynccontextmanager
async def deployed(
    site: PipedSite, plugin: str, files: dict[str, str], target: dict[str, Any], **spec: Any
) -> AsyncIterator[str]:
    """An application `page` that was deployed by one plugin; yields its id."""
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {"name": "page", **spec},
    }
    site.commit({"page/app.pipecd.yaml": json.dumps(document), **files})
    site.start()
    async with site.client() as client:
        application_id = await client.register("page", **{plugin: [target["name"]]})
        with site.explained():
            await wait_live(site, client, application_id)
        yield application_id


def files_target(site: PipedSite) -> dict[str, Any]:
    return {"name": "web", "config": {"path": str(site.folder / "www")}}


async def test_the_tree_and_one_file_of_it_are_shown(site: PipedSite) -> None:
    target = files_target(site)
    site.configure({"name": "files", "deployTargets": [target]})
    page = {"page/public/index.html": "<h1>one</h1>\n"}
    async with deployed(
        site, "files", page, target, plugins={"files": {"source": "public"}}
    ) as application_id:
        (site.folder / "www" / "current" / "index.html").write_text("<h1>two</h1>\n")
        tree = site.pipectl("application", "resource", application_id, "-o", "table")
        shown = site.pipectl("application", "resource", application_id, "index.html", "-o", "table")
        named = site.pipectl(
            "application", "resource", "--app-id", application_id, "file/index.html"
        )
        directory = site.pipectl(
            "application", "resource", application_id, "Directory/web", "-o", "yaml"
        )
        strange = site.pipectl("application", "resource", application_id, "index.htm", code=4)
        listed = site.pipectl("application", "resource", application_id, "-o", "name").split()
        data = json.loads(site.pipectl("application", "resource", application_id, "-o", "json"))
        lines = site.pipectl(
            "application", "resource", application_id, "index.html", "--logs", "web", code=4
        )

    assert tree.splitlines()[0].split() == ["KIND", "NAME", "HEALTH", "TARGET", "AGE", "REASON"]
    assert "File       └─ index.html" in tree
    assert "<h1>two</h1>" in shown
    assert "-<h1>two</h1>\n+<h1>one</h1>" in shown
    details = json.loads(named)
    assert details["manifest"] == "<h1>two</h1>\n"
    assert details["resource"]["name"] == "index.html"
    assert details["logs"] == []
    assert f"path: {site.folder}/www" in directory
    assert "did you mean" in strange
    assert "File/index.html" in listed
    assert data["application_live_state"]["resources"]
    assert "has no lines of a container 'web'" in lines


async def test_secrets_of_the_application_are_masked_and_kept_nowhere(
    site: PipedSite, tmp_path: Path
) -> None:
    """Whatever a plugin says, piped knows what was opened for the application."""
    pair = KeyPair.new(2048)
    (tmp_path / "private").write_bytes(pair.private)
    (tmp_path / "public").write_bytes(pair.public)
    target = {"name": "nowhere"}
    site.configure(
        {"name": "dummy", "deployTargets": [target]},
        secretManagement={
            "type": "KEY_PAIR",
            "config": {
                "privateKeyFile": str(tmp_path / "private"),
                "publicKeyFile": str(tmp_path / "public"),
            },
        },
    )
    shown = {
        "manifest": f"password: {SECRET}\nseen: yes\n",
        "difference": f"-{SECRET}\n",
        "events": [f"tried {SECRET}"],
        "log": f"signed in with {SECRET}\n\x1b]0;owned\x07two\nthree\n",
        "containers": ["web", "side"],
    }
    encryption = {"encryptedSecrets": {"password": Sealer(pair.public).seal(SECRET)}}
    options = {"dummy": {"details": shown}}
    async with deployed(
        site, "dummy", {}, target, plugins=options, encryption=encryption
    ) as application_id:
        command = ("application", "resource", application_id, "nothing-0")
        text = site.pipectl(*command, "-o", "table")
        data = site.pipectl(*command, "-o", "json")
        lines = site.pipectl(*command, "--logs", "web", "--tail", "2")
        before = site.pipectl(*command, "--logs", "web", "--previous", "--tail", "1")
        missing = site.pipectl(*command, "--logs", "none", code=4)
        await site.stop()

    assert SECRET not in text + data + lines + before
    assert "seen: yes" in text
    assert "seen: yes" in data
    assert "tried ***" in text
    assert lines == "\\x1b]0;owned\\x07two\nthree\n"
    assert before == "three\n"
    assert "'none'" in missing


async def test_what_was_shown_is_on_no_disk_and_in_no_log(site: PipedSite) -> None:
    """The content of a file by hand: only the deploy target has it, and whoever opens it."""
    needle = "needle-in-no-haystack"
    target = files_target(site)
    site.configure({"name": "files", "deployTargets": [target]})
    options = {"files": {"source": "public", "ignoreDrift": [{"paths": ["state"]}]}}
    async with deployed(
        site, "files", {"page/public/state": "empty"}, target, plugins=options
    ) as application_id:
        (site.folder / "www" / "current" / "state").write_text(needle)
        shown = site.pipectl("application", "resource", application_id, "state", "-o", "table")
        await site.stop()

    assert needle in shown
    www = site.folder / "www"
    for folder in (site.server.folder, site.folder):
        kept = [each for each in folder.rglob("*") if each.is_file() and www not in each.parents]
        assert kept
        assert [each for each in kept if needle.encode() in each.read_bytes()] == []


async def test_a_piped_that_is_stopped_is_said_at_once(site: PipedSite) -> None:
    target = {"name": "nowhere"}
    site.configure({"name": "dummy", "deployTargets": [target]})
    gone = {"dummy": {"details": {"gone": True}}}
    async with deployed(site, "dummy", {}, target, plugins=gone) as application_id:
        lost = site.pipectl("application", "resource", application_id, "nothing-0", code=4)
        await site.stop()
        away = site.pipectl("application", "resource", application_id, "nothing-0", code=1)

    assert "nothing-0 is gone, as told" in lost
    assert "is not connected" in away
