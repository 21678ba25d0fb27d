# SPDX-License-Identifier: Apache-2.0
"""The control plane is told how the plugins are, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.facts import Facts, PluginFailed
from pipecd_piped.plugins import Phase, Plugin, PluginLimits, PluginState, PluginStateReporter
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.rpc import Endpoints, admit_all, connect, rpc, serving

LIMIT_SECONDS = 60
PUSH_SERVICE = push.DESCRIPTOR.services_by_name["PushService"]


class PushListener:
    """Takes the reports."""

    def __init__(self) -> None:
        self.plugins: asyncio.Queue[push.ReportPluginsRequest] = asyncio.Queue()

    @rpc("ReportPlugins")
    async def report_plugins(
        self, caller: object, request: push.ReportPluginsRequest
    ) -> push.ReportPluginsResponse:
        self.plugins.put_nowait(request)
        return push.ReportPluginsResponse()


@asynccontextmanager
async def control_plane(listener: PushListener | None = None) -> AsyncIterator[ControlPlane]:
    """Without a listener it is one that knows nothing of plugins."""
    endpoints = Endpoints(admit=admit_all)
    if listener is not None:
        others = [each.name for each in PUSH_SERVICE.methods if each.name != "ReportPlugins"]
        endpoints.add(PUSH_SERVICE, listener, unimplemented=others)
    async with (
        serving(endpoints, "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        yield ControlPlane(channel)


@asynccontextmanager
async def running(reporter: PluginStateReporter) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(reporter.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def wait_plugin(state: PluginState) -> Plugin:
    plugin = Plugin("wait", PluginLimits(), lambda _: None)
    plugin.version, plugin.state = "0.1", state
    return plugin


async def test_every_change_of_a_plugin_is_told() -> None:
    plugin = wait_plugin(PluginState(phase=Phase.STARTING, sentence="starts"))
    listener = PushListener()
    facts, failures = Facts(), list[PluginFailed]()
    facts.subscribe(PluginFailed, failures.append)
    async with control_plane(listener) as control:
        reporter = PluginStateReporter(control, [plugin], facts, clock=lambda: 1000.0)
        reporter.on_change(plugin)
        async with running(reporter):
            first = await asyncio.wait_for(listener.plugins.get(), LIMIT_SECONDS)
            plugin.state = PluginState(phase=Phase.FAILED, sentence="gone", last_output=("oh",))
            reporter.on_change(plugin)
            second = await asyncio.wait_for(listener.plugins.get(), LIMIT_SECONDS)
            plugin.state = PluginState(phase=Phase.STARTING, sentence="again")
            reporter.on_change(plugin)
            third = await asyncio.wait_for(listener.plugins.get(), LIMIT_SECONDS)

    assert first.plugins[0].state == push.PluginState.STARTING
    failed = second.plugins[0]
    assert (failed.state, failed.reason) == (push.PluginState.FAILED, "gone")
    assert (list(failed.last_output), failed.since.seconds) == (["oh"], 1000)
    assert third.plugins[0].restarts == 1
    assert failures == [PluginFailed(plugin="wait", reason="gone")]


async def test_a_control_plane_that_does_not_know_plugins_is_left_in_peace() -> None:
    plugin = wait_plugin(PluginState(phase=Phase.STARTING, sentence="starts"))
    async with (
        control_plane() as control,
        running(PluginStateReporter(control, [plugin], Facts())) as task,
    ):
        await asyncio.sleep(0.1)

        assert not task.done(), "a component that ends is taken for a bug"
