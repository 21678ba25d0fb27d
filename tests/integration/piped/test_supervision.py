# SPDX-License-Identifier: Apache-2.0
"""What piped keeps an eye on: its plugins, the records of scripts, and what it says of itself."""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

BIN = Path(sys.executable).parent
LIMIT = 60
ODD_PLUGIN = (
    Path(__file__).parents[3] / "packages" / "piped" / "tests" / "plugins" / "programs"
) / "odd_plugin.py"


async def until(holds: Callable[[], object], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.02)


def script(text: str) -> dict[str, Any]:
    return {"name": "SCRIPT_RUN", "with": {"run": text}}


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []


async def test_the_records_of_scripts_go_when_their_deployment_has_ended(
    site: PipedSite, client: SiteClient
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


class Admin:
    """piped's admin port."""

    def __init__(self, site: PipedSite) -> None:
        self._site = site
        self.port = pick_port()

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
def admin(site: PipedSite) -> Admin:
    return Admin(site)


def part_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    [part] = [each for each in answer["parts"] if each["name"] == name]
    return dict(part)


async def test_readiness_follows_a_plugin_that_is_killed_and_comes_back(
    site: PipedSite, client: SiteClient, admin: Admin
) -> None:
    site.commit({"README": "an example"})
    site.configure("wait", "dummy")
    site.start("--admin-port", str(admin.port))
    await admin.until(200, lambda it: it["notReady"] == [])

    os.kill(site.find_plugin_pid("dummy"), signal.SIGKILL)
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
    site_of: Callable[[ServerProcess], PipedSite], own_server: ServerProcess
) -> None:
    site = site_of(own_server)
    admin = Admin(site)
    plugin = site.folder / "plugin"
    plugin.write_text("#!/bin/sh\necho 'no licence'\nexit 7\n")
    plugin.chmod(0o755)
    site.configure(
        "wait",
        {"name": "broken", "url": f"file://{plugin}", "port": pick_port()},
        repositories=[{"repoId": "gone", "remote": str(site.folder / "gone"), "branch": "main"}],
    )
    site.start("--admin-port", str(admin.port))

    def only_two_are_not_ready(answer: dict[str, Any]) -> bool:
        named = {part["name"] for part in answer["parts"] if not part["ready"]}
        return named == {"plugin broken", "repository gone"}

    answer = await admin.until(503, only_two_are_not_ready)
    assert part_of(answer, "repository gone")["state"] in {"opening", "unreachable"}
    await admin.until(503, lambda it: part_of(it, "repository gone")["state"] == "unreachable")
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


async def test_a_stage_that_hangs_ends_by_its_timeout_and_its_plugin_is_restarted(
    site: PipedSite, client: SiteClient
) -> None:
    """Its process pings all the while; nothing but a restart ends what it does."""
    hangs = {
        "name": "DUMMY_SYNC",
        "timeout": "1s",
        "with": {"sleep": "1h", "ignoreCancel": "1h", "record": str(site.record)},
    }
    commit = site.commit_application("web", [hangs])
    site.configure("dummy", "scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == [f"DUMMY_SYNC {commit}"], site)
    pid = site.find_plugin_pid("dummy")
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert "DUMMY_SYNC took longer than 1s" in ended.status_reason
    states = await client.plugins_are(dummy="READY", scriptrun="READY")
    assert pid != site.find_plugin_pid("dummy")
    assert (states["dummy"].restarts, states["scriptrun"].restarts) == (1, 0)
    [failed] = [each for each in site.events() if each["event"] == "plugin.failed"]
    assert "did not end a stage within 30s after it was cancelled" in failed["sentence"]


def peak_memory(site: PipedSite) -> int:
    """The most memory that piped ever had, in MiB."""
    text = Path(f"/proc/{site.pid}/status").read_text()
    [line] = [each for each in text.splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


FLOODS = (
    "yes 'a line of a flood' | head -c 200000000",
    "head -c 100000000 /dev/zero | tr '\\0' x",
    "head -c 50000000 /dev/urandom",
)
ROOM = 30
"""MiB that a flood may cost."""


async def test_a_flood_of_output_costs_little_memory_and_is_named(
    site: PipedSite, client: SiteClient
) -> None:
    """Many lines, one line without an end, and garbage, beside a plugin that serves."""
    plugin = site.folder / "flooding"
    go = site.folder / "go"
    # The pause is for a second of its own: in that of a flood nothing more is written down.
    said = f"{'; echo; '.join(FLOODS)}; echo; sleep 2; echo 'said it all'"
    plugin.write_text(
        "#!/bin/sh\n"
        f"(until [ -e {go} ]; do sleep 0.1; done; {said}) &\n"
        f'exec {BIN}/pipecd-plugin-dummy "$@"\n'
    )
    plugin.chmod(0o755)
    commit = site.commit_application("web", [script("true")])
    site.configure("scriptrun", {"name": "dummy", "url": f"file://{plugin}", "port": pick_port()})
    site.start()
    application_id = await client.register("web")
    await client.completed(await client.deploy("web", commit, application_id))
    await client.plugins_are(dummy="READY", scriptrun="READY")
    before = peak_memory(site)

    go.touch()
    await until(lambda: '"said it all"' in site.log_text(), site)
    after = peak_memory(site)

    assert after - before < ROOM
    dropped = [each for each in site.events() if each["event"] == "plugin.output_dropped"]
    assert {each["plugin"] for each in dropped} == {"dummy"}
    assert sum(each["lines"] for each in dropped) > 1_000_000
    assert len(site.log_text()) < 20_000_000
    ended = await client.completed(await client.deploy("web", commit, application_id))
    assert ended.status == pb.DEPLOYMENT_SUCCESS
    states = await client.plugins_are(dummy="READY", scriptrun="READY")
    assert states["dummy"].restarts == 0


async def test_an_answer_of_100_mb_costs_little_memory_and_its_plugin_is_named(
    site: PipedSite, client: SiteClient
) -> None:
    good = site.commit_application("good", [script("true")])
    commit = site.commit_application("web", [{"name": "SUCCEED"}])
    plugin = site.folder / "odd"
    plugin.write_text(f"#!{sys.executable}\n{ODD_PLUGIN.read_text()}")
    plugin.chmod(0o755)
    site.configure(
        "scriptrun",
        {
            "name": "odd",
            "url": f"file://{plugin}",
            "port": pick_port(),
            "config": {"record": str(site.record), "answer": 100},
        },
    )
    site.start()
    await client.completed(await client.deploy("good", good))
    before = peak_memory(site)

    ended = await client.completed(await client.deploy("web", commit))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    said = "the plugin 'odd' answered BuildQuickSyncStages with more than 10 MiB"
    assert said in ended.status_reason
    assert peak_memory(site) - before < ROOM
    await client.plugins_are(odd="READY", scriptrun="READY")


def pipectl(site: PipedSite, *arguments: str) -> str:
    done = subprocess.run(
        [BIN / "pipectl", *arguments],
        env={
            **os.environ,
            "PIPECTL_ADDRESS": site.server.address,
            "PIPECTL_API_KEY": site.server.admin_key,
            "PIPECTL_INSECURE": "1",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return done.stdout


async def test_a_person_restarts_a_plugin_and_its_stage_is_continued(
    site: PipedSite, client: SiteClient
) -> None:
    commit = site.commit_application("web", [{"name": "WAIT", "with": {"duration": "4s"}}])
    site.configure("wait", "scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    await client.until(
        deployment_id, lambda it: bool(it.stages) and "startTime" in it.stages[0].metadata
    )
    before = site.find_plugin_pid("wait")

    told = await asyncio.to_thread(
        pipectl, site, "piped", "restart-plugin", "--piped-id", site.piped_id, "--plugin", "wait"
    )
    assert json.loads(told)["command_id"]

    ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    states = await client.plugins_are(wait="READY", scriptrun="READY")
    assert (states["wait"].restarts, states["scriptrun"].restarts) == (1, 0)
    assert site.find_plugin_pid("wait") != before
    assert not [each for each in site.events() if each["event"] == "plugin.failed"]
