# SPDX-License-Identifier: Apache-2.0
"""Plugins of other makers under a real piped: nothing of theirs runs beside itself, no line is lost.

The plugin is `tests/support/go_plugin.py`, which has the habits of one made with the Go SDK.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 60
GO_PLUGIN = Path(__file__).parents[2] / "support" / "go_plugin.py"


async def until(holds: Callable[[], object], site: Any) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def go_plugin(site: Any, **config: Any) -> dict[str, Any]:
    """The plugin, as piped's configuration names it."""
    plugin = site.folder / "go-plugin"
    plugin.write_text(f"#!{sys.executable}\n{GO_PLUGIN.read_text()}")
    plugin.chmod(0o755)
    return {
        "name": "scripts",
        "url": f"file://{plugin}",
        "port": free_port(),
        "config": {"record": str(site.folder / "facts"), "tick": 0.1, **config},
    }


def facts(site: Any, about: str) -> list[list[Any]]:
    """What the plugin has noted."""
    return [fact for line in site.records("facts") if (fact := json.loads(line))[0] == about]


def script(run: str, **more: str) -> dict[str, Any]:
    return {"name": "SCRIPT_RUN", "with": {"run": run, **more}}


async def test_a_script_of_a_go_plugin_runs_and_is_rolled_back(site: Any, client: Any) -> None:
    record = site.record
    stages = [
        script(f"echo one >> {record}; echo said one", onRollback=f"echo undone >> {record}"),
        script("exit 3"),
    ]
    commit = site.commit_application("web", stages)
    site.configure(go_plugin(site))
    site.start()

    ended = await client.completed(await client.deploy("web", commit))

    assert ended.status == pb.DEPLOYMENT_FAILURE, ended.status_reason
    assert site.records() == ["one", "undone"]
    assert "said one" in await client.log(ended, ended.stages[0])
