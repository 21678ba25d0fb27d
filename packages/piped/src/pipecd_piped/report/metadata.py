# SPDX-License-Identifier: Apache-2.0
"""The metadata that stages and plugins store with a deployment, to resume it after a restart.

A planner or scheduler opens the store of its deployment, plugins read and write it through their
private port, and it is closed when this piped is done with the deployment.

A value is visible only once it cannot be lost: `put_…` returns after the control plane has
acknowledged it, or, while that is away, after it is durable on disk in the order of all reports. A
restarted piped delivers it before it reads the deployment again. A save that is refused leaves the
store unchanged: an instance that has lost the lease must start nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from google.protobuf.message import Message

from pipecd_model.errors import DeniedError, StateError
from pipecd_model.stage import PLUGIN_KEY
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipedservice import service_pb2 as pb

if TYPE_CHECKING:
    from pipecd_piped.controlplane.client import ControlPlane
    from pipecd_piped.report.ordered import OrderedClient

    Client = ControlPlane | OrderedClient

PATIENCE_SECONDS: Final = 2.0
"""Longer than the response of a reachable control plane takes, and too short to be noticed."""

AWAY_SECONDS: Final = 0.2
"""The limit for a control plane that did not respond the last time."""

PLUGIN: Final = PLUGIN_KEY

PutDurably = Callable[[str, str, Message], Awaitable[None]]
"""Queues a report, given the application, the RPC and the request; returns when it is durable."""


class Saving:
    """Saves a deployment's metadata at the control plane, or durably in the outbox."""

    def __init__(
        self,
        application_id: str,
        control: "Client",
        put_durably: PutDurably,
        patience_seconds: float,
    ) -> None:
        self._application_id = application_id
        self.control = control
        self._put_durably = put_durably
        self._patience_seconds = patience_seconds
        self._is_away = False

    async def __call__(self, method: str, calling: Awaitable[object], request: Message) -> None:
        """Await the call; if it is not accepted in time, queue the request durably instead."""
        try:
            async with asyncio.timeout(AWAY_SECONDS if self._is_away else self._patience_seconds):
                await calling
        except TimeoutError:
            self._is_away = True
            await self._put_durably(self._application_id, method, request)
        else:
            self._is_away = False


Save = Callable[[dict[str, str]], Awaitable[None]]


class Values:
    """The values of one namespace, with the function that saves all of them."""

    def __init__(self, values: Mapping[str, str], save: Save) -> None:
        self._values = dict(values)
        self._save = save
        # Saves carry the whole map: a later one must not overtake an earlier one.
        self._saving = asyncio.Lock()

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def copy(self) -> dict[str, str]:
        """Returns all values."""
        return dict(self._values)

    async def put(self, values: Mapping[str, str]) -> None:
        async with self._saving:
            merged = {**self._values, **values}
            await self._save(merged)
            self._values = merged


class MetadataStore:
    """The metadata of one deployment: of its stages, of its plugins, and shared by all of them."""

    def __init__(self, deployment: Deployment, saving: Saving) -> None:
        self._id = deployment.id
        self._saving = saving
        self._service = saving.control.service
        kept = deployment.metadata_v2
        stages = {stage.id: dict(stage.metadata) for stage in deployment.stages}
        plugins = {name: dict(values.keyValues) for name, values in kept.plugins.items()}
        self._stages = {name: self._make_stage(name, values) for name, values in stages.items()}
        self._plugins = {name: self._make_plugin(name, values) for name, values in plugins.items()}
        self._shared = dict(kept.shared.keyValues)

    def check_plugin(self, stage_id: str, plugin: str) -> None:
        """Raises DeniedError when a stage is run by another plugin; any may use an unknown one."""
        owner = self.get_stage(stage_id, PLUGIN)
        if owner and owner != plugin:
            raise DeniedError(
                f"the stage {stage_id!r} is run by the plugin {owner!r}, not by {plugin!r}",
                hint="this is a fault of the plugin",
            )

    def get_stage(self, stage_id: str, key: str) -> str | None:
        """Returns a value of a stage, None when it has none."""
        return self._stages[stage_id].get(key) if stage_id in self._stages else None

    async def put_stage(self, stage_id: str, values: Mapping[str, str]) -> None:
        """Store values of a stage; they are acknowledged or durable when this returns."""
        # A rollback stage may have been planned after this store was opened.
        if stage_id not in self._stages:
            self._stages[stage_id] = self._make_stage(stage_id, {})
        await self._stages[stage_id].put(values)

    def get_plugin(self, plugin: str, key: str) -> str | None:
        """Returns a value that a plugin stored with the deployment, None when there is none."""
        return self._plugins[plugin].get(key) if plugin in self._plugins else None

    def copy_plugin(self, plugin: str) -> dict[str, str]:
        """Returns all values that a plugin stored with the deployment."""
        return self._plugins[plugin].copy() if plugin in self._plugins else {}

    async def put_plugin(self, plugin: str, values: Mapping[str, str]) -> None:
        """Store values of a plugin with the deployment, as `put_stage` does."""
        if plugin not in self._plugins:
            self._plugins[plugin] = self._make_plugin(plugin, {})
        await self._plugins[plugin].put(values)

    def get_shared(self, key: str) -> str | None:
        """Returns a value that piped stored for all plugins, None when there is none."""
        return self._shared.get(key)

    def _make_stage(self, stage_id: str, values: Mapping[str, str]) -> Values:
        async def save(merged: dict[str, str]) -> None:
            request = pb.SaveStageMetadataRequest(
                deployment_id=self._id, stage_id=stage_id, metadata=merged
            )
            calling = self._saving.control.call_until_accepted(
                self._service.SaveStageMetadata, request
            )
            await self._saving("SaveStageMetadata", calling, request)

        return Values(values, save)

    def _make_plugin(self, plugin: str, values: Mapping[str, str]) -> Values:
        async def save(merged: dict[str, str]) -> None:
            request = pb.SaveDeploymentPluginMetadataRequest(
                deployment_id=self._id, plugin_name=plugin, metadata=merged
            )
            calling = self._saving.control.call_until_accepted(
                self._service.SaveDeploymentPluginMetadata, request
            )
            await self._saving("SaveDeploymentPluginMetadata", calling, request)

        return Values(values, save)


class MetadataStores:
    """The stores of the deployments that piped works on now."""

    def __init__(
        self,
        control: "Client",
        put_durably: PutDurably,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`patience_seconds`: how long one put waits for the control plane before it is queued."""
        self._control = control
        self._put_durably = put_durably
        self._patience_seconds = patience_seconds
        self._stores: dict[str, MetadataStore] = {}
        self._users: defaultdict[str, int] = defaultdict(int)

    def open(self, deployment: Deployment) -> MetadataStore:
        """Returns the store of a deployment; the first caller fills it from the message."""
        self._users[deployment.id] += 1
        if deployment.id not in self._stores:
            saving = Saving(
                deployment.application_id, self._control, self._put_durably, self._patience_seconds
            )
            self._stores[deployment.id] = MetadataStore(deployment, saving)
        return self._stores[deployment.id]

    def close(self, deployment_id: str) -> None:
        """Close a store; it is dropped when all callers that opened it have closed it."""
        self._users[deployment_id] -= 1
        if self._users[deployment_id] <= 0:
            del self._users[deployment_id]
            self._stores.pop(deployment_id, None)

    @contextmanager
    def opened(self, deployment: Deployment) -> Iterator[MetadataStore]:
        """Yields a store that is open while the block runs."""
        store = self.open(deployment)
        try:
            yield store
        finally:
            self.close(deployment.id)

    def find(self, deployment_id: str) -> MetadataStore | None:
        """Returns the open store of a deployment, None when piped does not run it."""
        return self._stores.get(deployment_id)

    def get(self, deployment_id: str) -> MetadataStore:
        """Returns the open store of a deployment; raises StateError when piped does not run it."""
        try:
            return self._stores[deployment_id]
        except KeyError:
            raise StateError(
                f"piped does not run the deployment {deployment_id!r}",
                hint="metadata can be read and written only while the deployment runs",
                deployment_id=deployment_id,
            ) from None
