# SPDX-License-Identifier: Apache-2.0
"""GetLivestate and GetPlanPreview, served only for plugins that have the interface.

Where a plugin has none, the service is not registered, and calls fail with UNIMPLEMENTED, as with
a Go plugin: piped then skips the plugin.
"""

import logging
import time
from typing import Final

from pipecd_sdk import _observation
from pipecd_sdk._glue.application_api import ApplicationApi
from pipecd_sdk._glue.entry import Setup
from pipecd_sdk._glue.piped import PipedClient
from pipecd_sdk._glue.texts import clean, cut
from pipecd_sdk.clock import Clock
from pipecd_sdk.livestate import Drift, Health, LiveContext, LiveState, Resource, SyncState
from pipecd_sdk.plugin import StagePlugin
from pipecd_sdk.preview import PlanPreview, Preview, PreviewContext
from pipecd_wire.model import application_live_state_pb2 as live_pb2
from pipecd_wire.model import application_pb2
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate_pb2
from pipecd_wire.plugin.planpreviewapi import api_pb2 as preview_pb2
from pipecd_wire.rpc import Endpoints, rpc

log = logging.getLogger(__name__)

LARGEST_ANSWER: Final = 3 * 1024 * 1024
"""Bytes of resources or details: a Go agent takes messages of 4 MiB and not more."""
LONGEST_REASON: Final = 64 * 1024
"""Characters; it is kept with the application and shown on a page."""


def add_observation(
    endpoints: Endpoints, plugin: StagePlugin, setup: Setup, piped: PipedClient, clock: Clock
) -> None:
    """Adds the services of the interfaces that the plugin implements."""
    if isinstance(plugin, LiveState | Drift):
        service = livestate_pb2.DESCRIPTOR.services_by_name["LivestateService"]
        endpoints.add(service, LivestateApi(plugin, setup, piped, clock))
    if isinstance(plugin, PlanPreview):
        service = preview_pb2.DESCRIPTOR.services_by_name["PlanPreviewService"]
        endpoints.add(service, PreviewApi(plugin, setup, piped, clock))


class LivestateApi(ApplicationApi):
    """The RPC that returns the live state."""

    @rpc("GetLivestate")
    async def get_livestate(
        self, _caller: object, request: livestate_pb2.GetLivestateRequest
    ) -> livestate_pb2.GetLivestateResponse:
        ctx = LiveContext(
            application_id=request.application_id,
            application_name=request.application_name,
            piped_id=request.piped_id,
            source=self._reader.source(request.deploy_source),
            targets=self._require_targets(request.deploy_targets, request.application_name),
            clock=self._clock,
            tools=self._tools,
            shared=self._open_objects(request.application_id),
        )
        seen = await _observation.observe(self._plugin, ctx)
        now = int(time.time())
        resources = [
            _to_resource(resource, target.name, self._setup.name, now)
            for target, resource in seen.resources
        ]
        return livestate_pb2.GetLivestateResponse(
            application_live_state=live_pb2.ApplicationLiveState(
                resources=_fit_resources(resources, request.application_id),
                health_status=_health(seen.healths),
            ),
            sync_state=_to_sync_state(seen.sync, now),
        )


class PreviewApi(ApplicationApi):
    """The RPC that returns a preview of a change."""

    @rpc("GetPlanPreview")
    async def get_plan_preview(
        self, _caller: object, request: preview_pb2.GetPlanPreviewRequest
    ) -> preview_pb2.GetPlanPreviewResponse:
        assert isinstance(self._plugin, PlanPreview)  # noqa: S101 - only then it is served
        ctx = PreviewContext(
            application_id=request.application_id,
            application_name=request.application_name,
            piped_id=request.piped_id,
            source=self._reader.sources(request),
            targets=self._require_targets(request.deploy_targets, request.application_name),
            clock=self._clock,
            tools=self._tools,
            shared=self._open_objects(request.application_id),
        )
        found = await _observation.preview(self._plugin, ctx)
        room = LARGEST_ANSWER // max(len(found), 1)
        return preview_pb2.GetPlanPreviewResponse(
            results=[_to_preview(preview, target.name, room) for target, preview in found]
        )


def _to_resource(resource: Resource, target: str, plugin: str, now: int) -> live_pb2.ResourceState:
    created = int(resource.created_at.timestamp()) if resource.created_at else now
    return live_pb2.ResourceState(
        id=clean(resource.id),
        parent_ids=[clean(each) for each in resource.parents],
        name=clean(resource.name),
        resource_type=clean(resource.kind),
        resource_metadata={clean(k): clean(v) for k, v in resource.metadata.items()},
        health_status=live_pb2.ResourceState.HealthStatus.ValueType(resource.health),
        health_description=clean(resource.description),
        deploy_target=target,
        plugin_name=plugin,
        created_at=max(created, 1),
        updated_at=now,
    )


def _fit_resources(
    resources: list[live_pb2.ResourceState], application_id: str
) -> list[live_pb2.ResourceState]:
    """Returns as many of the first resources as fit into one response; logs how many do not."""
    size = 0
    for count, resource in enumerate(resources):
        size += resource.ByteSize() + 8
        if size > LARGEST_ANSWER:
            fields = {"application_id": application_id, "left_out": len(resources) - count}
            log.warning("livestate.cut", extra={"fields": fields})
            return resources[:count]
    return resources


def _health(healths: set[Health]) -> live_pb2.ApplicationLiveState.Status.ValueType:
    """Returns the health of all resources by upstream's rule: unknown goes before unhealthy."""
    if Health.UNKNOWN in healths:
        return live_pb2.ApplicationLiveState.UNKNOWN
    if Health.UNHEALTHY in healths:
        return live_pb2.ApplicationLiveState.OTHER
    return live_pb2.ApplicationLiveState.HEALTHY


def _to_sync_state(state: SyncState, now: int) -> application_pb2.ApplicationSyncState:
    return application_pb2.ApplicationSyncState(
        status=application_pb2.ApplicationSyncStatus.ValueType(state.status),
        short_reason=cut(clean(state.short_reason), 1024),
        reason=cut(clean(state.reason), LONGEST_REASON),
        timestamp=now,
    )


def _to_preview(preview: Preview, target: str, room: int) -> preview_pb2.PlanPreviewResult:
    details = clean(preview.details).encode()
    if len(details) > room:
        kept = details[:room].rpartition(b"\n")[0].decode(errors="ignore").encode()
        details = kept + f"\n… {len(details) - len(kept)} more bytes are not shown\n".encode()
    return preview_pb2.PlanPreviewResult(
        deploy_target=target,
        summary=cut(clean(preview.summary), LONGEST_REASON),
        no_change=preview.no_change,
        details=details,
        diff_language=preview.language,
    )
