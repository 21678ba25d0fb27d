# SPDX-License-Identifier: Apache-2.0
"""Reports the states of the plugins to the control plane."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.errors import PipecdError
from pipecd_piped.controlplane.client import ControlPlane, UnknownRpcError
from pipecd_piped.facts import Facts, PluginFailed
from pipecd_piped.plugins.plugin import Plugin
from pipecd_piped.plugins.state import Phase
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.push import push_pb2 as push

log = logger(__name__)


@dataclass(slots=True)
class _SeenPhase:
    """The last known phase of a plugin."""

    since: float
    phase: Phase | None = None
    starts: int = 0


class PluginStateReporter:
    """Reports the states of all plugins to the control plane whenever one changes."""

    def __init__(
        self,
        control: ControlPlane,
        plugins: Iterable[Plugin],
        facts: Facts,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._control = control
        self._plugins = plugins
        self._facts = facts
        self._clock = clock
        self._changed = asyncio.Event()
        self._changed.set()
        self._seen: dict[str, _SeenPhase] = {}

    def on_change(self, plugin: Plugin) -> None:
        """Queue a report of a plugin's changed state; a failure is also published as a fact."""
        seen = self._seen.setdefault(plugin.name, _SeenPhase(since=self._clock()))
        phase = plugin.state.phase
        if phase is not seen.phase:
            seen.phase, seen.since = phase, self._clock()
            seen.starts += phase is Phase.STARTING
            if phase is Phase.FAILED:
                self._facts.publish(PluginFailed(plugin=plugin.name, reason=plugin.state.sentence))
        self._changed.set()

    async def run(self) -> None:
        """Report each change for ever; stops reporting when the control plane lacks the RPC."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._control.call_until_accepted(
                    self._control.push.ReportPlugins,
                    push.ReportPluginsRequest(
                        plugins=[self._state(each) for each in self._plugins]
                    ),
                )
            except UnknownRpcError:
                await asyncio.Event().wait()
            except PipecdError as error:
                log.warning("plugin.state_not_delivered", reason=str(error))

    def _state(self, plugin: Plugin) -> push.PluginState:
        seen = self._seen.get(plugin.name) or _SeenPhase(since=self._clock())
        return push.PluginState(
            name=plugin.name,
            version=plugin.version,
            state=push.PluginState.State.Value(plugin.state.phase.name),
            reason=plugin.state.sentence,
            last_output=plugin.state.last_output,
            restarts=max(0, seen.starts - 1),
            since=Timestamp(seconds=int(seen.since)),
        )
