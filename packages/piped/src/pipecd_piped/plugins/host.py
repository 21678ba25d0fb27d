# SPDX-License-Identifier: Apache-2.0
"""Runs all plugins of a piped, each under its own supervisor, and stops them at the end.

A plugin that cannot start does not affect the others, or piped itself.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from pipecd_model.config import PluginConfig
from pipecd_model.errors import NotFoundError
from pipecd_piped.plugins.backend import PluginBackend
from pipecd_piped.plugins.choose import choose
from pipecd_piped.plugins.plugin import Plugin
from pipecd_piped.plugins.state import PluginLimits
from pipecd_piped.plugins.supervise import HostContext, Supervisor
from pipecd_piped.programs.command import pdeathsig_wrapper
from pipecd_piped.programs.download import DownloadLimits
from pipecd_piped.programs.orphans import OrphanReaper
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup

log = logger(__name__)

AFTER_KILL_SECONDS: Final = 10.0
"""Seconds to wait for the end of processes that were killed."""

REMIND_SECONDS: Final = 0.25
"""Seconds between repeated signals to a plugin that has to stop at once."""
SIGNAL_GAP_SECONDS: Final = 0.2
"""The least seconds between two signals: two at the same time are delivered as one."""

FINISH_SECONDS: Final = 1.0
"""Seconds after the grace period before a kill: a plugin may use all of the grace period."""


class PluginHost:
    """Runs the plugins while the block runs. None of their processes outlives it."""

    def __init__(
        self,
        configs: Iterable[PluginConfig],
        *,
        data_dir: Path,
        backend: PluginBackend,
        limits: PluginLimits | None = None,
        download: DownloadLimits | None = None,
        grace_seconds: float = 30,
        on_change: Callable[[Plugin], None] | None = None,
    ) -> None:
        """`grace_seconds`: the time that plugins have to stop."""
        self._configs = tuple(configs)
        self._folder = data_dir / "plugins"
        self._orphans = OrphanReaper(data_dir)
        self._backend = backend
        self._limits = limits or PluginLimits()
        self._download = download or DownloadLimits()
        self._grace_seconds = grace_seconds
        self.on_change = on_change
        self._plugins = {
            config.name: Plugin(
                config.name,
                self._limits,
                self._on_plugin_change,
                backend.secrets,
                backend.metadata,
            )
            for config in self._configs
        }
        self._supervisors: list[Supervisor] = []
        self._running: set[asyncio.Task[None]] = set()
        self._tasks = UnwrappedTaskGroup()
        self._deadline: asyncio.Timeout | None = None
        self._is_hurried = False

    @property
    def plugins(self) -> Mapping[str, Plugin]:
        """Returns the plugins by name."""
        return MappingProxyType(self._plugins)

    def choose(
        self, stage_name: str, *, wanted: str | None = None, declared: Collection[str] = ()
    ) -> Plugin:
        """Returns the plugin that runs a stage, see `pipecd_piped.plugins.choose`."""
        return choose(self._plugins, stage_name, wanted=wanted, declared=declared)

    def restart(self, name: str, by: str) -> None:
        """Stop and start one plugin; its stages are continued. Raises NotFoundError."""
        if name not in self._plugins:
            raise NotFoundError(
                f"this piped has no plugin {name!r}", hint=f"it has {', '.join(self._plugins)}"
            )
        for supervisor in self._supervisors:
            if supervisor.name == name:
                supervisor.restart(by)

    async def wait_settled(self, limit: float) -> None:
        """Wait until every plugin has been ready or has failed once, `limit` seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                for plugin in self._plugins.values():
                    await plugin.wait_tried()

    async def __aenter__(self) -> Self:
        await self._orphans.sweep()
        context = HostContext(
            folder=self._folder,
            orphans=self._orphans,
            names=frozenset(self._plugins),
            backend=self._backend,
            limits=self._limits,
            wrapper=await pdeathsig_wrapper(),
            grace_seconds=self._grace_seconds,
            download=self._download,
        )
        await self._tasks.__aenter__()
        for config in self._configs:
            supervisor = Supervisor(config, self._plugins[config.name], context)
            self._supervisors.append(supervisor)
            self._running.add(
                self._tasks.create_task(supervisor.run(), name=f"plugin {config.name}")
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # There is no time for a grace period here: two signals mean to stop at once.
            for supervisor in self._supervisors:
                supervisor.stop()
            await self._wait_ended(SIGNAL_GAP_SECONDS)
            await self.stop(self._limits.hurry_seconds)
        finally:
            for task in self._running:
                task.cancel()
            await self._tasks.__aexit__(kind, error, trace)

    async def stop(self, grace_seconds: float) -> None:
        """Signal all plugins to stop, wait up to `grace_seconds`, then kill those that are left.

        A plugin that cannot return an unfinished stage gets the signal only when its stage or the
        grace period has ended.
        """
        for supervisor in self._supervisors:
            supervisor.stop()
        grace_seconds = (
            min(grace_seconds, self._limits.hurry_seconds) if self._is_hurried else grace_seconds
        )
        if await self._wait_ended(grace_seconds):
            return
        for supervisor in self._supervisors:
            if not supervisor.is_signalled:
                supervisor.signal_stop()
        if await self._wait_ended(FINISH_SECONDS):
            return
        log.warning("plugin.killed", tasks=[t.get_name() for t in self._running if not t.done()])
        for supervisor in self._supervisors:
            supervisor.kill()
        await self._wait_ended(AFTER_KILL_SECONDS)

    def kill(self) -> None:
        """Stop at once: plugins get a second signal and `hurry_seconds` to end their processes."""
        self._is_hurried = True
        for supervisor in self._supervisors:
            supervisor.stop()
        if self._deadline is not None and not self._deadline.expired():
            soon = asyncio.get_running_loop().time() + self._limits.hurry_seconds
            if (end := self._deadline.when()) is None or end > soon:
                self._deadline.reschedule(soon)

    async def _wait_ended(self, limit: float) -> bool:
        try:
            async with asyncio.timeout(limit) as self._deadline:
                while left := [task for task in self._running if not task.done()]:
                    await asyncio.wait(left, timeout=REMIND_SECONDS)
                    if self._is_hurried:
                        self._signal_again()
        except TimeoutError:
            return False
        finally:
            self._deadline = None
        return True

    def _signal_again(self) -> None:
        """Signal each plugin again: two signals at the same time reach a process as one."""
        for supervisor in self._supervisors:
            supervisor.stop()

    def _on_plugin_change(self, plugin: Plugin) -> None:
        if self.on_change is not None:
            self.on_change(plugin)
