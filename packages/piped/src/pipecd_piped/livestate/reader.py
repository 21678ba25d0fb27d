# SPDX-License-Identifier: Apache-2.0
"""Reads the live state of one application from its plugins, with the deployed commit."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from pipecd_model.config import PluginConfig
from pipecd_model.errors import ConfigError, PluginError, SourceError
from pipecd_piped.livestate.merge import LiveStateView, merge
from pipecd_piped.plan.protocols import ReadSources
from pipecd_piped.plan.providers import targets_of
from pipecd_piped.plan.sources import read_config
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.livestateapi.api_pb2 import GetLivestateRequest, GetLivestateResponse

ANSWER_SECONDS: Final = 60.0
"""The deadline of a plugin's response in seconds."""

READY_SECONDS: Final = 30.0


_Place = tuple[str, str, str, str]
"""Repository, folder, file name and commit: the same file for ever."""


class LivePlugin(Protocol):
    """A plugin that may return live states."""

    name: str

    @property
    def restarts(self) -> int:
        """How often the plugin was restarted; a new process may implement other services."""

    async def wait_ready(self, limit: float, /) -> None:
        """Wait until the plugin is ready; raises PluginError when it is not in time."""

    async def get_livestate(
        self, request: GetLivestateRequest, /, *, deadline: float
    ) -> GetLivestateResponse | None:
        """Returns the live state; None from a plugin that does not implement it."""


class _PluginsFailedError(Exception):
    """Plugins did not answer, in time or at all: what they run may still use their source."""

    def __init__(self, view: LiveStateView) -> None:
        super().__init__("plugins failed")
        self.view = view
        """What is known without them."""


class LiveStateReader:
    """Reads the live state of an application from its plugins."""

    def __init__(
        self,
        *,
        plugins: Mapping[str, LivePlugin],
        configs: Iterable[PluginConfig],
        sources: ReadSources,
    ) -> None:
        self._plugins = plugins
        self._configs = tuple(configs)
        self._sources = sources
        self._offers: dict[str, tuple[int, bool]] = {}
        self._named: dict[str, frozenset[str]] = {}
        """Plugins that only the file of an application gives deploy targets of, by its id."""
        self._read: dict[str, tuple[_Place, dict[str, list[str]]]] = {}
        """The deploy targets in the deployed file of an application, and which file that was."""

    def lane_of(self, application: Application) -> str:
        """Returns the lane of an application: the name of one of its plugins, else empty."""
        names = targets_of(application, self._configs).keys() & self._plugins.keys()
        return min(names, default="")

    def has_plugin(self, application: Application, name: str) -> bool:
        """Returns whether an application has deploy targets of a plugin.

        Those that only its deployed file names are known since its live state was read.
        """
        is_named = name in self._named.get(application.id, ())
        return is_named or name in targets_of(application, self._configs)

    @property
    def lanes(self) -> list[str]:
        """All that `lane_of` may return."""
        return ["", *self._plugins]

    async def view(
        self, application: Application, deployed: ApplicationDeploymentReference
    ) -> LiveStateView | None:
        """Returns the live state; None when none of its plugins has one. Raises SourceError."""
        filename = deployed.config_filename or application.git_path.config_filename
        try:
            named = await self._read_named_targets(application, deployed, filename)
            known = targets_of(application, self._configs)
            self._named.pop(application.id, None)
            if more := frozenset(named.keys() - known.keys()):
                self._named[application.id] = more
            targets = {
                name: chosen
                for name, chosen in (known | named).items()
                if name in self._plugins and await self._offers_it(self._plugins[name])
            }
            if not targets:
                return None
            async with self._sources.open(
                application.git_path, deployed.trigger.commit.hash, config_filename=filename
            ) as source:
                return await self._ask(application, source, targets)
        except _PluginsFailedError as failed:
            return failed.view
        except ConfigError as error:
            # The commit was deployed before: not its file is wrong, but e.g. a key was lost.
            raise SourceError(str(error)) from None

    async def _read_named_targets(
        self, application: Application, deployed: ApplicationDeploymentReference, filename: str
    ) -> dict[str, list[str]]:
        """Returns the deploy targets that the deployed application file names, by plugin."""
        if not any(plugin.deploy_targets for plugin in self._configs):
            return {}  # there are none to name
        git_path, commit = application.git_path, deployed.trigger.commit.hash
        place = (git_path.repo.id, git_path.path, filename, commit)
        known = self._read.get(application.id)
        if known is None or known[0] != place:
            source = await self._sources.read(git_path, commit, config_filename=filename)
            targets = read_config(source).deploy_targets
            known = (place, {name: list(each) for name, each in targets.items()})
            self._read[application.id] = known
        return known[1]

    async def _ask(
        self, application: Application, source: DeploymentSource, targets: Mapping[str, list[str]]
    ) -> LiveStateView:
        """Returns what all plugins say. Raises _PluginsFailedError when some do not answer."""
        answers: dict[str, GetLivestateResponse] = {}
        failures: dict[str, str] = {}

        async def ask(name: str) -> None:
            request = GetLivestateRequest(
                piped_id=application.piped_id,
                application_id=application.id,
                application_name=application.name,
                deploy_source=source,
                deploy_targets=targets[name],
            )
            try:
                answer = await self._plugins[name].get_livestate(request, deadline=ANSWER_SECONDS)
            except PluginError as error:
                failures[name] = str(error)
            else:
                if answer is not None:
                    answers[name] = answer

        async with asyncio.TaskGroup() as tasks:
            for name in targets:
                tasks.create_task(ask(name))
        view = merge(answers, failures)
        if failures:
            raise _PluginsFailedError(view)
        return view

    async def _offers_it(self, plugin: LivePlugin) -> bool:
        """Returns whether a plugin implements live states; asked once per process.

        A plugin that does refuses a request without deploy targets; for one that does not the RPC
        is unknown. Neither needs a checkout.
        """
        await plugin.wait_ready(READY_SECONDS)
        known = self._offers.get(plugin.name)
        if known is not None and known[0] == plugin.restarts:
            return known[1]
        try:
            offers = (
                await plugin.get_livestate(GetLivestateRequest(), deadline=ANSWER_SECONDS)
                is not None
            )
        except PluginError:
            offers = True
        self._offers[plugin.name] = (plugin.restarts, offers)
        return offers
