# SPDX-License-Identifier: Apache-2.0
"""From a plugin's folder to a stage: built, pushed to a registry, fetched by piped, run."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.oci_registry import OciRegistry
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.web_server import Answer
from pipecd_wire.model import deployment_pb2 as pb

ROOT = Path(__file__).parents[3]
LIMIT = 240
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


PLUGIN = f"""#!{sys.executable}
from pipecd_plugin_wait.plugin import main

main()
"""


@pytest.fixture
def registry() -> Iterator[OciRegistry]:
    with OciRegistry() as serving:
        yield serving


def pipectl(*arguments: str, home: Path) -> str:
    done = subprocess.run(
        [Path(sys.executable).parent / "pipectl", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "DOCKER_CONFIG": str(home)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(600)
async def test_a_plugin_that_was_pushed_runs_and_needs_its_registry_only_once(
    site: PipedSite, client: SiteClient, registry: OciRegistry
) -> None:
    file = site.folder / "wait.pyz"
    folder = str(ROOT / "plugins" / "wait")
    pipectl("plugin", "build", folder, "--output", str(file), home=site.folder)
    where = ["--registry", registry.host, "--repository", "team/wait", "--tag", "v1", "--insecure"]
    files = f"linux/{MACHINE}={file}"
    told = pipectl("plugin", "push", *where, "--files", files, "-o", "json", home=site.folder)
    url = json.loads(told)["url"]
    site.commit({"README": "an example"})
    site.configure({"name": "wait", "url": url, "port": pick_port(), "insecure": True})
    site.start()
    commit = site.commit_application("web", [{"name": "WAIT", "with": {"duration": "10ms"}}])
    application_id = await client.register("web")
    first = await client.completed(await client.deploy("web", commit, application_id))
    await site.stop()
    asked = len(registry.asked)
    registry.stop()
    site.start()
    second = await client.completed(await client.deploy("web", commit, application_id))

    assert first.status == pb.DEPLOYMENT_SUCCESS, first.status_reason
    assert second.status == pb.DEPLOYMENT_SUCCESS, second.status_reason
    assert len(registry.asked) == asked


async def test_a_plugin_whose_source_is_away_is_waited_for_and_others_work(
    site: PipedSite, client: SiteClient, registry: OciRegistry
) -> None:
    content = PLUGIN.encode()
    url = registry.give("/wait", Answer(status=503))
    sha256 = hashlib.sha256(content).hexdigest()
    site.commit({"README": "an example"})
    site.configure({"name": "wait", "url": url, "sha256": sha256, "port": pick_port()}, "scriptrun")
    site.start()
    states = await client.plugins_are(wait="FAILED", scriptrun="READY")
    site.commit_application("one", [{"name": "SCRIPT_RUN", "with": {"run": "true"}}])
    commit = site.commit_application("two", [{"name": "WAIT", "with": {"duration": "10ms"}}])
    waiting = await client.deploy("two", commit)
    other = await client.completed(await client.deploy("one", commit))
    registry.give("/wait", Answer(body=content))
    ended = await client.completed(waiting)

    assert f"the source {url} answered 503" in states["wait"].reason
    assert other.status == pb.DEPLOYMENT_SUCCESS, other.status_reason
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
