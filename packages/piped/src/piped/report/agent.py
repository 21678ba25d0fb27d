# SPDX-License-Identifier: Apache-2.0
"""What piped says about itself: who it is, that it lives, and how its plugins are."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.config import PipedConfig
from pipecd_model.config.mask import masked_yaml
from pipecd_model.errors import DeniedError, PipecdError, UnauthenticatedError
from pipecd_runtime.logs import logger
from pipecd_wire.model.common_pb2 import ApplicationGitRepository
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.controlplane.client import ControlPlane, UnknownRpcError
from piped.facts import Facts, PluginFailed

log = logger(__name__)

STAT_INTERVAL_SECONDS: Final = 60.0
"""The control plane shows a piped as gone after twice as long."""


async def introduce(
    control: ControlPlane, config: PipedConfig, *, version: str, public_key: str = ""
) -> None:
    """Tell who we are, until it is heard; raises when the control plane does not know us.

    `public_key` closes secrets that this piped can open.
    """
    encryption = Piped.SecretEncryption(type="NONE")
    if public_key:
        encryption = Piped.SecretEncryption(type="KEY_PAIR", public_key=public_key)
    try:
        answer = await control.call_until_accepted(
            control.service.ReportPipedMeta,
            pb.ReportPipedMetaRequest(
                version=version,
                config=masked_yaml(config),
                repositories=[
                    ApplicationGitRepository(
                        id=each.repo_id, remote=each.remote, branch=each.branch
                    )
                    for each in config.repositories
                ],
                plugins=[
                    Piped.Plugin(
                        name=plugin.name,
                        deploy_targets=[target.name for target in plugin.deploy_targets],
                    )
                    for plugin in config.plugins
                ],
                secret_encryption=encryption,
            ),
        )
    except (UnauthenticatedError, DeniedError) as error:
        raise type(error)(
            f"the control plane at {config.api_address} refuses this piped: {error}",
            hint="check projectID, pipedID and the piped key",
        ) from None
    log.info("piped.connected", address=config.api_address, name=answer.name)


class Stats:
    """Tells the control plane every minute that piped lives, with its metrics."""

    def __init__(self, control: ControlPlane, metrics: Callable[[], str]) -> None:
        """`metrics`: all of them in Prometheus' text format."""
        self._control = control
        self._metrics = metrics

    async def run(self) -> None:
        """Report for ever."""
        while True:
            try:
                await self._control.call(
                    self._control.service.ReportStat,
                    pb.ReportStatRequest(piped_stats=self._metrics().encode()),
                )
            except PipecdError as error:
                log.debug("piped.stat_not_told", reason=str(error))
            await asyncio.sleep(STAT_INTERVAL_SECONDS)


class State(Protocol):
    """Where a plugin stands."""

    @property
    def phase(self) -> str:
        """fetching, starting, ready, failed or stopping."""

    @property
    def sentence(self) -> str:
        """Why."""

    @property
    def last_output(self) -> tuple[str, ...]:
        """What its process said last."""


class Plugin(Protocol):
    """What is told of a plugin."""

    name: str
    version: str

    @property
    def state(self) -> State:
        """Where it stands."""


@dataclass(slots=True)
class Seen:
    """What has been seen of a plugin."""

    phase: str
    since: float
    starts: int = 0


class PluginStates:
    """Tells the control plane how the plugins are, whenever that changes."""

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
        self._seen: dict[str, Seen] = {}

    def note_change(self, plugin: Plugin) -> None:
        """Have the state of a plugin reported; a failure is also published."""
        seen = self._seen.setdefault(plugin.name, Seen(phase="", since=self._clock()))
        phase = str(plugin.state.phase)
        if phase != seen.phase:
            seen.phase, seen.since = phase, self._clock()
            seen.starts += phase == "starting"
            if phase == "failed":
                self._facts.publish(PluginFailed(plugin=plugin.name, reason=plugin.state.sentence))
        self._changed.set()

    async def run(self) -> None:
        """Report each change; a control plane that does not want to know is left in peace."""
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
                log.warning("plugin.state_not_told", reason=str(error))

    def _state(self, plugin: Plugin) -> push.PluginState:
        seen = self._seen.get(plugin.name) or Seen(phase="", since=self._clock())
        return push.PluginState(
            name=plugin.name,
            version=plugin.version,
            state=push.PluginState.State.Value(str(plugin.state.phase).upper()),
            reason=plugin.state.sentence,
            last_output=plugin.state.last_output,
            restarts=max(0, seen.starts - 1),
            since=Timestamp(seconds=int(seen.since)),
        )
