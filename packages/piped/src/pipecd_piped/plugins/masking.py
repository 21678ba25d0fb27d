# SPDX-License-Identifier: Apache-2.0
"""Masks known secrets in the responses of plugins, which all users of the project can read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipecd_model.errors import PluginError
from pipecd_wire.pipecd.details.details_pb2 import ResourceDetails
from pipecd_wire.plugin.deploymentapi.api_pb2 import DetermineVersionsResponse
from pipecd_wire.plugin.livestateapi.api_pb2 import GetLivestateResponse
from pipecd_wire.plugin.planpreviewapi.api_pb2 import GetPlanPreviewResponse

Mask = Callable[[str], str]
"""Returns a text with the secrets in it masked."""


@contextmanager
def masking_errors(mask: Mask) -> Iterator[None]:
    """Mask the secrets in a PluginError that the block raises; its type stays the same."""
    try:
        yield
    except PluginError as error:
        error.args = tuple(mask(str(each)) for each in error.args)
        error.hint = mask(error.hint)
        raise


def mask_versions(answer: DetermineVersionsResponse, mask: Mask) -> None:
    """Mask the names, versions and addresses of artifacts."""
    for version in answer.versions:
        version.name = mask(version.name)
        version.version = mask(version.version)
        version.url = mask(version.url)


def mask_live_state(answer: GetLivestateResponse, mask: Mask) -> None:
    """Mask the reasons, descriptions and metadata of a live state."""
    if answer.HasField("sync_state"):
        answer.sync_state.reason = mask(answer.sync_state.reason)
        answer.sync_state.short_reason = mask(answer.sync_state.short_reason)
    for resource in answer.application_live_state.resources:
        resource.health_description = mask(resource.health_description)
        for key, value in resource.resource_metadata.items():
            resource.resource_metadata[key] = mask(value)


def mask_plan_preview(answer: GetPlanPreviewResponse, mask: Mask) -> None:
    """Mask the summaries and details of a plan preview, which become UTF-8."""
    for each in answer.results:
        each.summary = mask(each.summary)
        each.details = mask(each.details.decode(errors="replace")).encode()


def mask_details(details: ResourceDetails, mask: Mask) -> None:
    """Mask everything that is shown of a resource."""
    details.manifest = mask(details.manifest)
    if details.HasField("difference"):
        details.difference = mask(details.difference)
    for event in details.events:
        event.kind, event.reason = mask(event.kind), mask(event.reason)
        event.message = mask(event.message)
    for log in details.logs:
        log.container, log.text = mask(log.container), mask(log.text)
    details.notes[:] = [mask(note) for note in details.notes]
