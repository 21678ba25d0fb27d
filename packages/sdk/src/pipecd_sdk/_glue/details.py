# SPDX-License-Identifier: Apache-2.0
"""OpenResource, served only for plugins that have the interface ResourceDetails."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_sdk._glue.application_api import ApplicationApi
from pipecd_sdk._glue.entry import Setup
from pipecd_sdk._glue.piped import PipedClient
from pipecd_sdk._glue.texts import clean, cut
from pipecd_sdk.clock import Clock
from pipecd_sdk.details import (
    ContainerLog,
    Details,
    DetailsContext,
    ResourceDetails,
    ResourceEvent,
)
from pipecd_sdk.livestate import Health, Resource
from pipecd_sdk.plugin import StagePlugin
from pipecd_wire.model import application_live_state_pb2 as live_pb2
from pipecd_wire.pipecd.details import details_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.rpc import Endpoints, rpc

LARGEST_MANIFEST: Final = 1024 * 1024
"""Characters; a resource of Kubernetes has at most 1.5 MiB."""
LARGEST_DIFFERENCE: Final = 512 * 1024
LARGEST_LOG: Final = 128 * 1024
MOST_LOGS: Final = 16
MOST_EVENTS: Final = 200
MOST_NOTES: Final = 50
LONGEST_TEXT: Final = 2 * 1024
"""Characters of an event or a note."""


def add_details(
    endpoints: Endpoints, plugin: StagePlugin, setup: Setup, piped: PipedClient, clock: Clock
) -> None:
    """Adds the service if the plugin implements the interface."""
    if isinstance(plugin, ResourceDetails):
        service = plugin_pb2.DESCRIPTOR.services_by_name["PluginDetailsService"]
        endpoints.add(service, DetailsApi(plugin, setup, piped, clock))


class DetailsApi(ApplicationApi):
    """The RPC that returns the details of a resource."""

    @rpc("OpenResource")
    async def open_resource(
        self, _caller: object, request: plugin_pb2.OpenResourceRequest
    ) -> plugin_pb2.OpenResourceResponse:
        assert isinstance(self._plugin, ResourceDetails)  # noqa: S101 - only then it is served
        targets = self._require_targets([request.deploy_target], request.application_name)
        ctx = DetailsContext(
            application_id=request.application_id,
            application_name=request.application_name,
            piped_id=request.piped_id,
            source=self._reader.source(request.deploy_source),
            targets=targets,
            clock=self._clock,
            tools=self._tools,
            shared=self._open_objects(request.application_id),
            container=request.container,
            log_lines=request.log_lines,
        )
        found = await self._plugin.open_resource(ctx, targets[0], _resource_of(request.resource))
        return plugin_pb2.OpenResourceResponse(details=to_details(found))


def _resource_of(message: live_pb2.ResourceState) -> Resource:
    return Resource(
        id=message.id,
        name=message.name,
        kind=message.resource_type,
        parents=tuple(message.parent_ids),
        health=Health(message.health_status),
        description=message.health_description,
        metadata=dict(message.resource_metadata),
        created_at=datetime.fromtimestamp(message.created_at, UTC),
    )


def to_details(found: Details) -> details_pb2.ResourceDetails:
    """Returns the details as they are sent: valid, and no larger than piped takes."""
    notes = [cut(clean(note), LONGEST_TEXT) for note in found.notes[:MOST_NOTES]]
    manifest = clean(found.manifest)
    if len(manifest) > LARGEST_MANIFEST:
        notes.append(f"the manifest is cut: it has {len(manifest)} characters")
    details = details_pb2.ResourceDetails(
        manifest=_cut_end(manifest, LARGEST_MANIFEST),
        language=clean(found.language),
        events=[_to_event(each) for each in found.events[-MOST_EVENTS:]],
        logs=_to_logs(found.logs, notes),
    )
    if found.difference is not None:
        difference = clean(found.difference)
        if len(difference) > LARGEST_DIFFERENCE:
            notes.append(f"the difference is cut: it has {len(difference)} characters")
        details.difference = _cut_end(difference, LARGEST_DIFFERENCE)
    if (more := len(found.events) - MOST_EVENTS) > 0:
        notes.append(f"{more} older events are left out")
    details.notes.extend(notes)
    return details


def _to_event(event: ResourceEvent) -> details_pb2.ResourceEvent:
    sent = details_pb2.ResourceEvent(
        kind=cut(clean(event.kind), LONGEST_TEXT),
        reason=cut(clean(event.reason), LONGEST_TEXT),
        message=cut(clean(event.message), LONGEST_TEXT),
        count=max(0, min(event.count, 2**31 - 1)),
    )
    if event.at is not None:
        sent.at.CopyFrom(Timestamp(seconds=int(event.at.timestamp())))
    return sent


def _to_logs(logs: Sequence[ContainerLog], notes: list[str]) -> list[details_pb2.ContainerLog]:
    if (more := len(logs) - MOST_LOGS) > 0:
        notes.append(f"the lines of {more} more containers are left out: name the one you want")
    sent = []
    for log in logs[:MOST_LOGS]:
        text = clean(log.text)
        if len(text) > LARGEST_LOG:
            notes.append(f"the oldest lines of {cut(clean(log.container), 200)} are left out")
            text = text[-LARGEST_LOG:].partition("\n")[2] or text[-LARGEST_LOG:]
        sent.append(
            details_pb2.ContainerLog(
                container=clean(log.container), previous=log.previous, text=text
            )
        )
    return sent


def _cut_end(text: str, longest: int) -> str:
    """Returns the text, or as many of its first lines as fit."""
    if len(text) <= longest:
        return text
    return text[: text.rfind("\n", 0, longest) + 1] or text[:longest]
