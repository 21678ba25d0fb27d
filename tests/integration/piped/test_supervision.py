# SPDX-License-Identifier: Apache-2.0
"""What piped keeps an eye on: its plugins, the records of scripts, and what it says of itself."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 60


async def until(holds: Callable[[], object], site: Any) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.02)


def script(text: str) -> dict[str, Any]:
    return {"name": "SCRIPT_RUN", "with": {"run": text}}


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []


async def test_the_records_of_scripts_go_when_their_deployment_has_ended(
    site: Any, client: Any
) -> None:
    scripts = site.folder / "data" / "scripts"
    seen = site.folder / "seen"
    commit = site.commit_application("web", [script(f"ls {scripts} > {seen}"), script("exit 7")])
    site.configure("scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_FAILURE, ended.status_reason
    assert seen.read_text().split() == [deployment_id], "it had one while it ran"
    await until(lambda: names_in(scripts) == [], site)

    # What a piped could not remove any more, the next one does; of others it knows nothing.
    await site.stop()
    for name in (deployment_id, "another"):
        (scripts / name / "stage-0.0").mkdir(parents=True)
    site.start()
    await until(lambda: names_in(scripts) == ["another"], site)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Admin:
    """piped's admin port."""

    def __init__(self, site: Any) -> None:
        self._site = site
        self.port = free_port()

    async def get(self, path: str) -> tuple[int, str]:
        """The status and the body of a page; 0 while nobody answers."""
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    async def until(self, status: int, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for an answer of /readyz."""
        with self._site.explained():
            async with asyncio.timeout(LIMIT):
                while True:
                    found, body = await self.get("/readyz")
                    if found == status and holds(json.loads(body)):
                        return dict(json.loads(body))
                    await asyncio.sleep(0.01)


@pytest.fixture
def admin(site: Any) -> Admin:
    return Admin(site)


def plugin_pid(site: Any, name: str) -> int:
    """The process of a plugin, from what piped has on record."""
    folder = site.folder / "data" / "processes"
    [pid] = [
        int(file.name)
        for file in folder.iterdir()
        if json.loads(file.read_text())["plugin"] == name
    ]
    return int(pid)


def part_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    [part] = [each for each in answer["parts"] if each["name"] == name]
    return dict(part)


async def test_readiness_follows_a_plugin_that_is_killed_and_comes_back(
    site: Any, client: Any, admin: Admin
) -> None:
    site.commit({"README": "an example"})
    site.configure("wait", "dummy")
    site.start("--admin-port", str(admin.port))
    await admin.until(200, lambda it: it["notReady"] == [])

    os.kill(plugin_pid(site, "dummy"), signal.SIGKILL)
    away = await admin.until(503, lambda it: part_of(it, "plugin dummy")["state"] == "failed")
    assert "was ended by SIGKILL" in part_of(away, "plugin dummy")["sentence"]
    assert part_of(away, "plugin wait")["ready"], "the others are unaffected"

    await admin.until(200, lambda it: it["notReady"] == [])
    _, metrics = await admin.get("/metrics")
    assert re.search(r'piped_plugin_restarts_total\{.*plugin="dummy".*\} 1\.0', metrics)
    assert re.search(r'piped_plugin_restarts_total\{.*plugin="wait".*\} 0\.0', metrics)
    assert re.search(r'piped_plugin_state\{.*plugin="dummy",.*state="ready"\} 1\.0', metrics)
    assert (await client.plugin_states())["dummy"].restarts == 1
    assert await admin.get("/healthz") == (200, "ok")
    assert (await admin.get("/version"))[0] == 200


async def test_readiness_names_a_crash_loop_a_repository_and_a_control_plane_that_is_away(
    site_of: Any, own_server: Any
) -> None:
    site = site_of(own_server)
    admin = Admin(site)
    plugin = site.folder / "plugin"
    plugin.write_text("#!/bin/sh\necho 'no licence'\nexit 7\n")
    plugin.chmod(0o755)
    site.configure(
        "wait",
        {"name": "broken", "url": f"file://{plugin}", "port": free_port()},
        repositories=[{"repoId": "gone", "remote": str(site.folder / "gone"), "branch": "main"}],
    )
    site.start("--admin-port", str(admin.port))

    answer = await admin.until(503, lambda it: len(it["notReady"]) == 2)
    assert part_of(answer, "control plane")["ready"]
    assert part_of(answer, "plugin wait")["ready"]
    assert part_of(answer, "repository gone")["state"] == "unreachable"
    await admin.until(
        503,
        lambda it: part_of(it, "plugin broken")["sentence"].startswith("crash loop, 5 times"),
    )
    async with site.client() as client:
        states = await client.plugins_are(broken="FAILED")
        assert states["broken"].reason.startswith("crash loop")
        assert states["broken"].last_output[-1] == "no licence"

    own_server.stop()
    await admin.until(503, lambda it: not part_of(it, "control plane")["ready"])
    own_server.start()
    await admin.until(503, lambda it: part_of(it, "control plane")["ready"])
