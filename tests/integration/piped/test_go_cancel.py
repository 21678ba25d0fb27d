# SPDX-License-Identifier: Apache-2.0
"""A cancelled stage of a plugin of another maker: its rollback meets nothing of it.

The plugin is `pipecd_test_support.go_plugin`. As one made with the Go SDK it gives up the call of a
cancelled stage at once, and lets the script go on.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.programs import GO_PLUGIN
from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 60


async def until(holds: Callable[[], object], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.02)


def go_plugin(site: PipedSite) -> dict[str, Any]:
    """The plugin, as piped's configuration names it."""
    plugin = site.folder / "go-plugin"
    plugin.write_text(f"#!{sys.executable}\n{GO_PLUGIN.read_text()}")
    plugin.chmod(0o755)
    return {
        "name": "scripts",
        "url": f"file://{plugin}",
        "port": pick_port(),
        "config": {"tick": 0.1},
    }


def script(
    site: PipedSite, name: str, *, silent: bool = False, elsewhere: bool = False
) -> dict[str, Any]:
    """A script that holds a lock while it lives; its rollback writes down whether it still does."""
    lock = site.folder / f"{name}.lock"
    run = [
        f"exec 9>> {lock}; flock 9",
        "cd /" if elsewhere else "true",
        f"echo {name} began >> {site.record}",
        # It says nothing, and is in a session of its own.
        "setsid sh -c 'while :; do sleep 0.05; done' > /dev/null 2>&1 &" if silent else "true",
        "while :; do sleep 0.05; done",
    ]
    undo = f"flock --nonblock {lock} true || echo beside {name} >> {site.record}"
    undone = f"echo {name} undone >> {site.record}"
    return {
        "name": "SCRIPT_RUN",
        "with": {"run": "\n".join(run), "onRollback": f"{undo}\n{undone}"},
    }


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in its files", "elsewhere"])
@pytest.mark.parametrize("silent", [False, True], ids=["alone", "with a silent child"])
async def test_a_cancelled_script_of_a_go_plugin_has_ended_when_its_rollback_begins(
    site: PipedSite, client: SiteClient, silent: bool, elsewhere: bool
) -> None:
    stage = script(site, "first", silent=silent, elsewhere=elsewhere)
    commit = site.commit_application("web", [stage])
    site.configure(go_plugin(site))
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == ["first began"], site)

    await client.cancel(deployment_id)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert site.records() == ["first began", "first undone"]


async def test_a_cancel_ends_nothing_of_another_stage_of_the_same_plugin(
    site: PipedSite, client: SiteClient
) -> None:
    gate = site.folder / "gate"
    other = {
        "name": "SCRIPT_RUN",
        "with": {
            "run": f"echo other began >> {site.record}; "
            f"while [ ! -e {gate} ]; do sleep 0.05; done; echo other ended >> {site.record}"
        },
    }
    web = site.commit_application("web", [script(site, "first")])
    shop = site.commit_application("shop", [other])
    site.configure(go_plugin(site))
    site.start()
    cancelled = await client.deploy("web", web)
    await until(lambda: site.records() == ["first began"], site)
    goes_on = await client.deploy("shop", shop)
    await until(lambda: "other began" in site.records(), site)

    await client.cancel(cancelled)
    assert (await client.completed(cancelled)).status == pb.DEPLOYMENT_CANCELLED
    gate.touch()
    ended = await client.completed(goes_on)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["first began", "other began", "first undone", "other ended"]
