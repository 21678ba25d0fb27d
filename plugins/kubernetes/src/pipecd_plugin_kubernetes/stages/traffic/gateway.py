# SPDX-License-Identifier: Apache-2.0
"""Traffic by the weights of an HTTPRoute of the Gateway API: each variant has its own Service."""

from collections.abc import Sequence
from math import gcd
from typing import Any, Final

from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.stages.traffic.podselector import find_service
from pipecd_plugin_kubernetes.stages.traffic.shares import ALL, Shares
from pipecd_sdk import StageFailedError

GROUP: Final = "gateway.networking.k8s.io"
_MOST: Final = 1_000_000
"""The largest weight that the API takes."""


def is_http_route(manifest: Manifest) -> bool:
    """Returns whether a manifest is an HTTPRoute."""
    return manifest.group == GROUP and manifest.kind == "HTTPRoute"


def find_http_route(manifests: Sequence[Manifest], options: KubernetesOptions) -> Manifest | None:
    """Returns the HTTPRoute that routes the traffic, None when there is none."""
    name = options.traffic_routing.gateway.http_route.name
    found = (each for each in manifests if is_http_route(each) and name in {"", each.name})
    return next(found, None)


def name_services(manifests: Sequence[Manifest], options: KubernetesOptions) -> dict[str, str]:
    """Returns the name of each variant's Service."""
    given = options.traffic_routing.gateway
    service = given.primary_service or find_service(manifests, options).name
    return {
        "primary": service,
        "canary": given.canary_service or f"{service}-canary",
        "baseline": given.baseline_service or f"{service}-baseline",
    }


def route_by_http_route(
    manifests: Sequence[Manifest], shares: Shares, options: KubernetesOptions
) -> Manifest:
    """Returns the HTTPRoute with the weights of the variants. Raises StageFailedError."""
    found = find_http_route(manifests, options)
    if found is None:
        name = options.traffic_routing.gateway.http_route.name
        raise StageFailedError(
            f"there is no HTTPRoute {name!r} among the manifests"
            if name
            else "there is no HTTPRoute among the manifests",
            hint="name it as trafficRouting.gateway.httpRoute.name of the application",
        )
    edited = found.copy()
    names = name_services(manifests, options)
    _check_primary(manifests, names["primary"], shares, options)
    changed = 0
    for rule in _list_rules(edited, options.traffic_routing.gateway.editable_rules):
        backends = _backends(rule, edited)
        if any(_is_variant(each, names) for each in backends):
            rule["backendRefs"] = _weigh(backends, names, shares)
            changed += 1
    if not changed:
        raise StageFailedError(
            f"no rule of {edited.describe()} that may be changed leads to the Service "
            f"{names['primary']!r}",
            hint="see trafficRouting.gateway.primaryService and editableRules of the application",
        )
    return edited


def _check_primary(
    manifests: Sequence[Manifest], name: str, shares: Shares, options: KubernetesOptions
) -> None:
    """Raises StageFailedError when the primary's Service would take pods of other variants."""
    label = options.variant_label
    service = next((each for each in manifests if each.is_service() and each.name == name), None)
    if service is None or shares.primary == ALL:
        return  # made by K8S_PRIMARY_ROLLOUT, or there is nothing to tell apart
    if find_map(service.body, "spec", "selector").get(label.key) != label.primary_value:
        raise StageFailedError(
            f"the selector of {service.describe()} does not have {label.key}: "
            f"{label.primary_value}, so it would send the primary's traffic to all variants",
            hint="add it to the manifest of the Service, and to the pods of the workload",
        )


def _list_rules(manifest: Manifest, editable: Sequence[str]) -> list[dict[str, Any]]:
    rules = find_map(manifest.body, "spec").get("rules") or []
    if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
        raise StageFailedError(f"spec.rules of {manifest.describe()} must be a list of maps")
    return [rule for rule in rules if not editable or rule.get("name") in editable]


def _backends(rule: dict[str, Any], manifest: Manifest) -> list[dict[str, Any]]:
    found = rule.get("backendRefs") or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise StageFailedError(f"backendRefs of {manifest.describe()} must be a list of maps")
    for each in found:
        weight = each.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, int) or not 0 <= weight <= _MOST:
            raise StageFailedError(
                f"a weight of {manifest.describe()} must be a whole number up to {_MOST}"
            )
    return found


def _is_variant(backend: dict[str, Any], names: dict[str, str]) -> bool:
    is_service = backend.get("kind", "Service") == "Service" and not backend.get("group")
    return is_service and backend.get("name") in names.values()


def _weigh(
    backends: list[dict[str, Any]], names: dict[str, str], shares: Shares
) -> list[dict[str, Any]]:
    """Returns the backends of the variants, then the others.

    Weights are parts of their sum. Other backends keep their part of all traffic.
    """
    others = [each for each in backends if not _is_variant(each, names)]
    mine = [each for each in backends if _is_variant(each, names)]
    like = {key: value for key, value in mine[0].items() if key not in {"name", "weight"}}
    total = sum(each.get("weight", 1) for each in mine) if others else 1
    wanted = [("primary", shares.primary)]
    wanted += [
        (name, share)
        for name, share in (("canary", shares.canary), ("baseline", shares.baseline))
        if share
    ]
    found = [{"name": names[name], **like, "weight": share * total} for name, share in wanted] + [
        {**each, "weight": each.get("weight", 1) * ALL} for each in others
    ]
    if others:
        part = gcd(*(each["weight"] for each in found)) or 1
        for each in found:
            each["weight"] = min(each["weight"] // part, _MOST)
    return found
