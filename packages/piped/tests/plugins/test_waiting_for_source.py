# SPDX-License-Identifier: Apache-2.0
"""Plugins whose sources are slow or away, in a host that runs others beside them."""

import asyncio
import hashlib
import os
import signal
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from pipecd_model.config import PluginConfig
from pipecd_piped.plugins import Phase, PluginLimits
from pipecd_piped.programs.download import DownloadLimits
from pipecd_test_support.plugin_world import PluginWorld, wait_for
from pipecd_test_support.web_server import Answer, WebServer


@pytest.fixture
def odd(world: PluginWorld, server: WebServer, free_port: int) -> PluginConfig:
    """The odd plugin, which the server shall give out as /odd."""
    content = world.executable("web").read_bytes()
    return PluginConfig(
        name="web",
        url=f"{server.url}/odd",
        sha256=hashlib.sha256(content).hexdigest(),
        port=free_port,
        config={"record": str(world.record("web"))},
    )


@pytest.fixture
def content(world: PluginWorld) -> bytes:
    read: bytes = world.executable("web").read_bytes()
    return read


async def test_a_source_that_is_away_is_named_and_holds_nobody_up(
    world: PluginWorld, server: WebServer, odd: PluginConfig, content: bytes, quick: PluginLimits
) -> None:
    server.give("/odd", Answer(status=503))
    said: list[str] = []
    host = world.host(
        odd, world.odd("other"), limits=quick, on_change=lambda p: said.append(p.state.sentence)
    )
    async with host:
        await host.wait_settled(60)
        plugin, other = host.plugins["web"], host.plugins["other"]
        await other.wait_ready(60)
        await wait_for(lambda: len(server.asked) > quick.crash_loop + 1)
        assert not plugin.state.crash_loop
        server.give("/odd", Answer(body=content))
        await plugin.wait_ready(60)

    named = f"the source {odd.url} answered 503 Service Unavailable; next try in "
    assert any(sentence.startswith(named) for sentence in said)
    assert not any("crash loop" in sentence for sentence in said)


async def test_a_person_who_does_not_want_to_wait_has_the_source_asked_once(
    world: PluginWorld, server: WebServer, odd: PluginConfig, quick: PluginLimits
) -> None:
    server.give("/odd", Answer(status=503))
    patient = replace(quick, first_pause_seconds=600, longest_pause_seconds=600)
    phases: list[Phase] = []
    host = world.host(odd, limits=patient, on_change=lambda it: phases.append(it.state.phase))
    async with host:
        await wait_for(lambda: phases.count(Phase.FAILED) == 1)
        host.restart("web", "a test")
        await wait_for(lambda: phases.count(Phase.FAILED) == 2)
        host.restart("web", "a test")
        await wait_for(lambda: phases.count(Phase.FAILED) == 3)

    assert len(server.asked) == 3


async def test_a_source_without_a_checksum_is_asked_again_by_a_person_not_by_a_crash(
    world: PluginWorld, server: WebServer, odd: PluginConfig, content: bytes, quick: PluginLimits
) -> None:
    server.give("/odd", Answer(body=content))
    config = PluginConfig(name="web", url=odd.url, port=odd.port, config=odd.config)
    async with world.host(config, limits=quick) as host:
        plugin = host.plugins["web"]
        await plugin.wait_ready(60)
        os.kill(world.facts("web", "started")[0][3], signal.SIGKILL)
        await wait_for(lambda: plugin.restarts == 1 and plugin.state.phase is Phase.READY, 60)
        assert server.asked == ["GET /odd"]
        host.restart("web", "a test")
        await wait_for(lambda: plugin.restarts == 2 and plugin.state.phase is Phase.READY, 60)

    assert server.asked == ["GET /odd"] * 2


async def test_progress_is_told_and_a_stop_does_not_wait_for_the_rest(
    world: PluginWorld, server: WebServer, odd: PluginConfig, content: bytes, tmp_path: Path
) -> None:
    released = threading.Event()

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(content[:100])
        handler.wfile.flush()
        released.wait(60)

    length = {"Content-Length": str(len(content))}
    server.give("/odd", Answer(headers=length, write=write))
    said: list[str] = []
    host = world.host(
        odd,
        download=DownloadLimits(progress_seconds=0),
        on_change=lambda plugin: said.append(plugin.state.sentence),
    )
    try:
        async with asyncio.timeout(60), host:
            await wait_for(lambda: any("MiB" in sentence for sentence in said))
            before = host.plugins["web"].state.phase
            await host.stop(30)
            after = host.plugins["web"].state.phase
    finally:
        released.set()

    assert (before, after) == (Phase.FETCHING, Phase.STOPPING)
    assert f"getting {odd.url}: 0.0 of 0.0 MiB" in said
    assert not [path for path in (tmp_path / "data" / "plugins").rglob("*") if path.is_file()]
