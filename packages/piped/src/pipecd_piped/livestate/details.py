# SPDX-License-Identifier: Apache-2.0
"""Opens one resource of an application's live state: its plugin is asked, nothing is kept.

Only resources that the plugin itself has named in the live state of the same application are asked
for: whoever may see one application does not read the objects of others through it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from pipecd_model.config import PluginConfig
from pipecd_model.errors import NotFoundError, StateError
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.livestate.merge import LiveStateView
from pipecd_piped.livestate.reporter import LastDeployments
from pipecd_piped.plan.protocols import CommitSources
from pipecd_piped.plan.providers import targets_of
from pipecd_wire.model.application_live_state_pb2 import ResourceState
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference
from pipecd_wire.pipecd.details.details_pb2 import ResourceDetails
from pipecd_wire.pipecd.plugin.plugin_pb2 import OpenResourceRequest, OpenResourceResponse
from pipecd_wire.pipecd.push.push_pb2 import OpenResource

ANSWER_SECONDS: Final = 60.0
"""The deadline of a plugin's response in seconds; the one who asked gives up before."""

USUAL_LINES: Final = 100
MOST_LINES: Final = 2000
"""Log lines of each container, whatever is asked for."""

MOST_BYTES: Final = 5 * 1024 * 1024


class DetailsPlugin(Protocol):
    """A plugin that may show details of resources."""

    async def open_resource(
        self, request: OpenResourceRequest, /, *, deadline: float
    ) -> OpenResourceResponse | None:
        """Returns the details; None from a plugin that does not implement it.

        Raises NotFoundError when the resource is gone, PluginError.
        """


class ReportedResources(Protocol):
    """The live states that were read last."""

    def list_resources(self, application_id: str, /) -> Sequence[ResourceState]:
        """Returns the resources of an application as they were reported last."""


class LiveReader(Protocol):
    """Reads live states."""

    async def view(
        self, application: Application, deployed: ApplicationDeploymentReference, /
    ) -> LiveStateView | None:
        """Returns the live state now; None when none of its plugins has one."""


class ResourceOpener:
    """Opens resources of the applications of this piped."""

    def __init__(
        self,
        *,
        state: ControlPlaneState,
        plugins: Mapping[str, DetailsPlugin],
        configs: Iterable[PluginConfig],
        sources: CommitSources,
        successes: LastDeployments,
        reported: ReportedResources,
        reader: LiveReader,
    ) -> None:
        self._state = state
        self._plugins = plugins
        self._configs = tuple(configs)
        self._sources = sources
        self._successes = successes
        self._reported = reported
        self._reader = reader

    async def open(self, wanted: OpenResource) -> ResourceDetails:
        """Returns the details of a resource, with known secrets masked. Raises PipecdError."""
        application = self._state.applications.get(wanted.application_id)
        if application is None:
            raise NotFoundError(f"this piped has no application {wanted.application_id[:200]!r}")
        targets = targets_of(application, self._configs).get(wanted.plugin_name, [])
        plugin = self._plugins.get(wanted.plugin_name)
        if plugin is None or wanted.deploy_target not in targets:
            raise NotFoundError(
                f"the application is not deployed to {wanted.deploy_target[:200]!r}"
                f" by a plugin {wanted.plugin_name[:200]!r}",
                hint="its live state may be old: wait for the next one",
            )
        deployed = await self._successes.get(application.id)
        if deployed is None:
            raise StateError("the application was never deployed", hint="deploy it first")
        resource = await self._find(application, deployed, wanted)
        return await self._ask(plugin, application, deployed, resource, wanted)

    async def _find(
        self,
        application: Application,
        deployed: ApplicationDeploymentReference,
        wanted: OpenResource,
    ) -> ResourceState:
        """Returns the resource in the live state; it is read again for one that is new."""

        def pick(resources: Sequence[ResourceState]) -> ResourceState | None:
            key = (wanted.resource_id, wanted.plugin_name, wanted.deploy_target)
            return next(
                (
                    each
                    for each in resources
                    if (each.id, each.plugin_name, each.deploy_target) == key
                ),
                None,
            )

        found = pick(self._reported.list_resources(application.id))
        if found is None:
            view = await self._reader.view(application, deployed)
            found = pick(view.resources) if view is not None else None
        if found is None:
            raise NotFoundError(
                f"the application has no resource {wanted.resource_id[:200]!r} any more",
                hint="its live state shows what runs now",
            )
        return found

    async def _ask(
        self,
        plugin: DetailsPlugin,
        application: Application,
        deployed: ApplicationDeploymentReference,
        resource: ResourceState,
        wanted: OpenResource,
    ) -> ResourceDetails:
        lines = min(wanted.log_lines, MOST_LINES) if wanted.log_lines > 0 else USUAL_LINES
        filename = deployed.config_filename or application.git_path.config_filename
        async with self._sources.open(
            application.git_path, deployed.trigger.commit.hash, config_filename=filename
        ) as source:
            request = OpenResourceRequest(
                piped_id=application.piped_id,
                application_id=application.id,
                application_name=application.name,
                deploy_source=source,
                deploy_target=resource.deploy_target,
                resource=resource,
                container=wanted.container,
                log_lines=lines,
            )
            answer = await plugin.open_resource(request, deadline=ANSWER_SECONDS)
        if answer is None:
            raise StateError(
                f"the plugin {wanted.plugin_name!r} cannot show resources",
                hint="it is an older version, or its platform has nothing more to show",
            )
        if answer.details.ByteSize() > MOST_BYTES:
            raise StateError(
                f"the plugin {wanted.plugin_name!r} shows more than {MOST_BYTES // 2**20} MiB",
                hint="ask for fewer log lines",
            )
        return answer.details
