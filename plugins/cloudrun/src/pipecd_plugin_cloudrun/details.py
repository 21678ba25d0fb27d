# SPDX-License-Identifier: Apache-2.0
"""What a person sees who opens a service, a revision or a job."""

from typing import Any, Final

from pipecd_google.errors import clean_message
from pipecd_plugin_cloudrun.compare import mask_environment
from pipecd_plugin_cloudrun.drift import describe_difference
from pipecd_plugin_cloudrun.livestate import LiveResources, read_time
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.readiness import list_conditions
from pipecd_sdk import Details, Resource, ResourceEvent, ResourceGoneError

LOG_PAGE: Final = "https://console.cloud.google.com/"


def describe_resource(live: LiveResources, resource: Resource, manifest: RunManifest) -> Details:
    """Returns what is shown of a resource. Raises ResourceGoneError."""
    from pipecd_sdk.kit import yaml  # noqa: PLC0415 - a plugin that waits needs no parser

    body = live.find(resource.id) if live.is_ours else None
    if body is None:
        raise ResourceGoneError(
            f"{resource.kind} {resource.name!r} is not there any more",
            hint="the live state shows what runs now",
        )
    shown = mask_environment(body) if manifest.is_secret else body
    is_root = body is live.root
    notes = [] if is_root else ["it is not in git: the service has made it"]
    if manifest.is_secret:
        notes.append("values of variables are not shown: the manifest holds secrets")
    notes += _find_logs(body)
    return Details(
        manifest=yaml.dump(shown),
        events=_list_events(body),
        difference=describe_difference(live, manifest) if is_root else None,
        notes=notes,
    )


def _find_logs(body: dict[str, Any]) -> list[str]:
    address = body.get("logUri")
    if isinstance(address, str) and address.startswith(LOG_PAGE):
        return [f"its log is at {clean_message(address)}"]
    return ["its log is in Cloud Logging"]


def _list_events(body: dict[str, Any]) -> list[ResourceEvent]:
    events = [
        ResourceEvent(
            at=read_time(each.get("lastTransitionTime")),
            kind=clean_message(str(each.get("state") or "")).removeprefix("CONDITION_"),
            reason=clean_message(str(each.get("type"))),
            message=clean_message(str(each.get("message") or each.get("reason") or "")),
        )
        for each in list_conditions(body)
    ]
    return sorted(events, key=lambda event: event.at.timestamp() if event.at else 0.0)
