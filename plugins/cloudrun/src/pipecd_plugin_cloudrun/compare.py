# SPDX-License-Identifier: Apache-2.0
"""Compares what runs with what should run, field by field. Pure.

Fields that only the platform has are its defaults and no difference; variables are compared by
their names, and amounts of CPU by their value.
"""

from collections.abc import Mapping
from typing import Any, Final

from pipecd_plugin_cloudrun.knative.fields import RESERVED
from pipecd_plugin_cloudrun.naming import strip_labels
from pipecd_sdk.kit.diff import MISSING, Node, diff

SERVICE_FIELDS: Final = (
    "description",
    "labels",
    "annotations",
    "ingress",
    "launchStage",
    "binaryAuthorization",
    "scaling",
    "customAudiences",
    "defaultUriDisabled",
    "invokerIamDisabled",
    "iapEnabled",
    "client",
    "clientVersion",
)
"""What people decide about a service beside its template and its traffic."""
TEMPLATE_FIELDS: Final = (
    "labels",
    "annotations",
    "scaling",
    "vpcAccess",
    "timeout",
    "serviceAccount",
    "containers",
    "volumes",
    "executionEnvironment",
    "encryptionKey",
    "encryptionKeyRevocationAction",
    "encryptionKeyShutdownDuration",
    "maxInstanceRequestConcurrency",
    "serviceMesh",
    "sessionAffinity",
    "nodeSelector",
    "gpuZonalRedundancyDisabled",
    "client",
    "clientVersion",
)
"""What a revision keeps of the template that made it."""
SERVICE_TEMPLATE_FIELDS: Final = ("healthCheckDisabled",)
"""What only the service tells of its template; a revision does not keep it."""
_WRITERS: Final = ("client", "clientVersion")
"""They tell which program wrote last, and mean nothing."""
MASK: Final = "*****"
_HIDDEN: Final = frozenset({"env", "args", "command", "httpHeaders"})
"""Lists of containers that may hold a secret in clear text."""

Body = dict[str, Any]


def extract_template(revision: Mapping[str, Any]) -> Body:
    """Returns the template that makes a revision like this one."""
    template = {key: revision[key] for key in TEMPLATE_FIELDS if revision.get(key) is not None}
    for key in ("labels", "annotations"):
        if isinstance(template.get(key), dict):
            template[key] = {
                name: value for name, value in template[key].items() if not _is_reserved(name)
            }
    return template


def extract_fields(service: Mapping[str, Any]) -> Body:
    """Returns what people decide about a service beside its template and its traffic."""
    return {key: service[key] for key in SERVICE_FIELDS if service.get(key) is not None}


def extract_unkept(service: Mapping[str, Any]) -> Body:
    """Returns what the revision of a service's template does not keep of it."""
    template = service.get("template")
    given = template if isinstance(template, Mapping) else {}
    return {key: given[key] for key in SERVICE_TEMPLATE_FIELDS if given.get(key) is not None}


def compare_template(revision: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Node]:
    """Returns where a revision differs from what a template makes; it does not keep all of it."""
    kept = {key: wanted[key] for key in TEMPLATE_FIELDS if key in wanted}
    return _compare(_normalize(revision), _normalize(kept))


def compare_resource(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Node]:
    """Returns where a service or job differs from what it should be; traffic is left out."""
    keys = (*SERVICE_FIELDS, "template")
    old = {key: live.get(key) for key in keys if live.get(key) is not None}
    new = {key: wanted.get(key) for key in keys if wanted.get(key) is not None}
    return _compare(_normalize(old), _normalize(new))


def mask_variables(nodes: list[Node]) -> list[Node]:
    """Returns the same differences without what may hold a secret: whole containers, too."""
    return [
        Node(path=node.path, keys=node.keys, old=_mask_node(node.old), new=_mask_node(node.new))
        if _HIDDEN.intersection(node.keys) or _is_nested(node.old) or _is_nested(node.new)
        else node
        for node in nodes
    ]


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def _mask_node(value: Any) -> Any:
    return value if value is MISSING else MASK


def mask_environment(value: Any) -> Any:
    """Returns a resource without the values of its variables, headers and commands.

    Variables that are kept in secrets are only named anyway.
    """
    if isinstance(value, dict):
        return {
            key: [_mask_variable(each) for each in inner]
            if key in _HIDDEN and isinstance(inner, list)
            else mask_environment(inner)
            for key, inner in value.items()
        }
    return [mask_environment(each) for each in value] if isinstance(value, list) else value


def _mask_variable(variable: Any) -> Any:
    if not isinstance(variable, dict):
        return MASK  # a word of a command
    return {**variable, "value": MASK} if "value" in variable else variable


def _compare(old: Any, new: Any) -> list[Node]:
    return diff(
        old,
        new,
        equate_empty=True,
        ignore_adding_map_keys=True,
        numeric_strings=True,
        bool_strings=True,
    )


def _normalize(value: Any) -> Any:
    """Returns a body in which equal things look the same."""
    if isinstance(value, Mapping):
        return {
            key: _normalize_key(key, inner)
            for key, inner in value.items()
            if key not in _WRITERS and key != "revision"
        }
    return [_normalize(each) for each in value] if isinstance(value, list | tuple) else value


def _normalize_key(key: str, value: Any) -> Any:
    if key == "env" and isinstance(value, list):
        return {
            str(each.get("name")): {k: v for k, v in each.items() if k != "name"}
            for each in value
            if isinstance(each, Mapping)
        }
    if key == "labels":
        return strip_labels(value)
    if key == "cpu" and isinstance(value, str):
        return _read_cpu(value)
    return _normalize(value)


def _read_cpu(text: str) -> str:
    """Returns an amount of CPU in thousandths, as the text that it is when it is none."""
    digits = text.removesuffix("m")
    if not digits.isdigit() or len(digits) > 9:
        return text
    return f"{int(digits) if text.endswith('m') else int(digits) * 1000}m"


def _is_reserved(name: str) -> bool:
    domain = name.partition("/")[0] if "/" in name else ""
    return any(domain == each or domain.endswith(f".{each}") for each in RESERVED)
