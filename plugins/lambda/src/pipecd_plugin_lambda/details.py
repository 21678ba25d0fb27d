# SPDX-License-Identifier: Apache-2.0
"""What people see who open the function, its alias or a version; values of variables are masked."""

from typing import Any

from pipecd_plugin_lambda.compare import format_nodes, mask_configuration
from pipecd_plugin_lambda.observing import SeenFunction, list_differences
from pipecd_sdk import Details, Resource, ResourceGoneError


async def open_seen(seen: SeenFunction, resource: Resource, application_id: str) -> Details:
    """Returns the details of one resource. Raises ResourceGoneError."""
    name = seen.manifest.name
    if seen.live is None or (seen.owner and seen.owner != application_id):
        raise ResourceGoneError(
            f"the function {name} is not there, or is that of another application",
            hint="the live state shows what runs now",
        )
    if resource.id == name:
        shown = mask_configuration(seen.live.configuration, hides_values=seen.manifest.hides_values)
        shown["Tags"] = dict(seen.live.tags)
        return Details(
            manifest=_dump(_plain(shown)),
            difference=format_nodes(await list_differences(seen)),
            notes=["the values of its variables are not shown"],
        )
    alias = seen.manifest.options.input.alias
    if resource.id == f"{name}:{alias}" and seen.alias.traffic is not None:
        parts = {
            "Name": alias,
            **seen.alias.traffic.to_api(),
            "FunctionUrl": dict(seen.alias.url or {}),
            "ProvisionedConcurrency": dict(seen.alias.provisioned or {}),
        }
        return Details(manifest=_dump(_plain({k: v for k, v in parts.items() if v})))
    version = resource.id.removeprefix(f"{name}:")
    if version not in seen.versions:
        raise ResourceGoneError(
            f"version {version} has no traffic of {alias} any more",
            hint="the live state shows what runs now",
        )
    found = seen.versions[version]
    return Details(
        manifest=_dump(
            _plain(mask_configuration(found.configuration, hides_values=seen.manifest.hides_values))
        ),
        notes=["the values of its variables are not shown"],
    )


def _dump(value: Any) -> str:
    from pipecd_sdk.kit import yaml  # noqa: PLC0415 - a plugin that waits needs no parser

    return yaml.dump(value)


def _plain(value: object) -> object:
    """Returns a value that YAML can write: AWS's answers have times in them."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items() if k != "ResponseMetadata"}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
