# SPDX-License-Identifier: Apache-2.0
"""Where a function differs from its manifest, field by field. Pure.

Only fields of git are compared: what AWS or others have set besides is left alone. The values of
variables never leave this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_plugin_lambda.parameters import FunctionParameters
from pipecd_plugin_lambda.provider.functions import LiveFunction
from pipecd_plugin_lambda.traffic import Traffic
from pipecd_sdk.kit.diff import MASK, MISSING, Node, diff, render
from pipecd_sdk.kit.text import make_printable

_NOT_COMPARED: Final = frozenset(
    {"Code", "CodeSigningConfigArn", "FunctionName", "Publish", "PublishTo"}
)
_SORTED: Final = (("Architectures",), ("VpcConfig", "SubnetIds"), ("VpcConfig", "SecurityGroupIds"))
"""Lists without an order: AWS returns them sorted."""
VARIABLES: Final = "Environment.Variables"
COMMANDS: Final = "ImageConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasState:
    """The alias as AWS has it."""

    traffic: Traffic | None
    version_hash: str = ""
    """The hash of the code of its first version."""
    url: Mapping[str, Any] | None = None
    provisioned: Mapping[str, Any] | None = None


def compare_function(
    manifest: FunctionManifest,
    parameters: FunctionParameters,
    live: LiveFunction,
    alias: AliasState,
    wanted_url: Mapping[str, Any],
) -> list[Node]:
    """Returns where a function and its alias are not as git has them; values are masked."""
    wanted = {k: v for k, v in parameters.created.items() if k not in _NOT_COMPARED}
    have = normalise_configuration(live)
    if manifest.image:
        wanted["ImageUri"] = manifest.image
    wanted["Tags"] = manifest.tags
    if manifest.reserved is not None:
        wanted["ReservedConcurrency"] = manifest.reserved
    if manifest.url is not None:
        wanted["FunctionUrl"] = wanted_url
        have["FunctionUrl"] = alias.url or {}
    if manifest.provisioned:
        wanted["ProvisionedConcurrency"] = manifest.provisioned
        have["ProvisionedConcurrency"] = (alias.provisioned or {}).get(
            "RequestedProvisionedConcurrentExecutions"
        )
    nodes = diff(
        _sort(have),
        _sort(wanted),
        equate_empty=True,
        ignore_adding_map_keys=True,
        numeric_strings=True,
        bool_strings=True,
    )
    ignored = manifest.options.ignore_drift
    kept = [node for node in nodes if not any(node.is_under(path) for path in ignored)]
    masked = mask_variables(kept)
    return [_mask_commands(node) for node in masked] if manifest.hides_values else masked


def normalise_configuration(live: LiveFunction) -> dict[str, Any]:
    """Returns a live function with the names and shapes that the API takes."""
    have = dict(live.configuration)
    have["Layers"] = [
        each.get("Arn") if isinstance(each, Mapping) else each for each in have.get("Layers") or ()
    ]
    image = have.pop("ImageConfigResponse", None)
    if isinstance(image, Mapping) and image.get("ImageConfig"):
        have["ImageConfig"] = image["ImageConfig"]
    have["ImageUri"] = live.code.get("ImageUri")
    have["Tags"] = dict(live.tags)
    have["ReservedConcurrency"] = live.reserved
    return have


def _sort(value: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(value)
    for first, *rest in _SORTED:
        if not rest and isinstance(found.get(first), list):
            found[first] = sorted(map(str, found[first]))
        elif rest and isinstance(found.get(first), Mapping):
            inner = dict(found[first])
            if isinstance(inner.get(rest[0]), list):
                inner[rest[0]] = sorted(map(str, inner[rest[0]]))
            found[first] = inner
    return found


def mask_variables(nodes: Iterable[Node]) -> list[Node]:
    """Returns the nodes without the values of variables; their names stay."""
    return [
        replace(node, old=_mask(node.old), new=_mask(node.new))
        if node.is_under(VARIABLES) or VARIABLES.startswith(f"{node.path}.")
        else node
        for node in nodes
    ]


def _mask_commands(node: Node) -> Node:
    """Returns a node without the words of the image's command, into which a secret was put."""
    if not node.is_under(COMMANDS):
        return node
    return replace(node, old=_mask(node.old), new=_mask(node.new))


def _mask(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mask(item) for key, item in value.items()}
    return value if value is MISSING or value is None else MASK


def mask_configuration(
    configuration: Mapping[str, Any], *, hides_values: bool = False
) -> dict[str, Any]:
    """Returns a configuration whose variables have no values, with secrets no commands either."""
    hidden = {"Environment", "ImageConfigResponse"} if hides_values else {"Environment"}
    return {key: _mask(value) if key in hidden else value for key, value in configuration.items()}


def list_alias_faults(alias: AliasState, name: str, live: LiveFunction) -> list[str]:
    """Returns sentences about an alias that does not send everything to what git says."""
    if alias.traffic is None:
        return [f"there is no alias {name}"]
    secondary = alias.traffic.secondary
    if secondary is not None and secondary.percent > 0:
        return [f"the traffic of {name} is split: {alias.traffic}"]
    if alias.version_hash and live.code_hash and alias.version_hash != live.code_hash:
        version = alias.traffic.primary.version
        return [f"{name} leads to version {version}, whose code is not that of the function"]
    return []


def format_nodes(nodes: Sequence[Node]) -> str:
    """Returns differences in the outline of the function, safe for a terminal."""
    return make_printable(render(nodes))
