# SPDX-License-Identifier: Apache-2.0
"""Traffic by the weights of an Istio VirtualService."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pipecd_plugin_kubernetes.config import KubernetesOptions, VariantLabel
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.stages.traffic.podselector import find_service
from pipecd_plugin_kubernetes.stages.traffic.shares import ALL, Shares, split
from pipecd_sdk import StageFailedError

GROUP: Final = "networking.istio.io"
_NAMED: Final = "http"
_NAMELESS: Final = ("tcp", "tls")
"""Routes of connections have no names: they are edited unless some are named."""


def is_virtual_service(manifest: Manifest) -> bool:
    """Returns whether a manifest is a VirtualService."""
    return manifest.group == GROUP and manifest.kind == "VirtualService"


def find_virtual_service(
    manifests: Sequence[Manifest], options: KubernetesOptions
) -> Manifest | None:
    """Returns the VirtualService that routes the traffic, None when there is none."""
    name = options.traffic_routing.istio.virtual_service.name
    found = (each for each in manifests if is_virtual_service(each) and name in {"", each.name})
    return next(found, None)


def route_by_virtual_service(
    manifests: Sequence[Manifest], shares: Shares, options: KubernetesOptions
) -> Manifest:
    """Returns the VirtualService with the weights of the variants. Raises StageFailedError."""
    found = find_virtual_service(manifests, options)
    if found is None:
        name = options.traffic_routing.istio.virtual_service.name
        raise StageFailedError(
            f"there is no VirtualService {name!r} among the manifests"
            if name
            else "there is no VirtualService among the manifests",
            hint="name it as trafficRouting.istio.virtualService.name of the application",
        )
    edited = found.copy()
    host = options.traffic_routing.istio.host or find_service(manifests, options).name
    changed = 0
    for route in _list_routes(edited, options.traffic_routing.istio.editable_routes):
        destinations = _destinations(route, edited)
        if any(_host(each) == host for each in destinations):
            route["route"] = _weigh(destinations, host, shares, options.variant_label)
            changed += 1
    if not changed:
        raise StageFailedError(
            f"no route of {edited.describe()} that may be changed leads to the host {host!r}",
            hint="see trafficRouting.istio.host and editableRoutes of the application",
        )
    return edited


def _list_routes(manifest: Manifest, editable: Sequence[str]) -> Iterator[dict[str, Any]]:
    spec = find_map(manifest.body, "spec")
    for key in (_NAMED, *_NAMELESS):
        routes = spec.get(key)
        if routes is None:
            continue
        if not isinstance(routes, list) or not all(isinstance(each, dict) for each in routes):
            raise StageFailedError(f"spec.{key} of {manifest.describe()} must be a list of maps")
        for route in routes:
            if not editable or (key == _NAMED and route.get("name") in editable):
                yield route


def _destinations(route: dict[str, Any], manifest: Manifest) -> list[dict[str, Any]]:
    found = route.get("route")
    if found is None:
        return []  # a redirect, or a direct response
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise StageFailedError(f"a route of {manifest.describe()} must be a list of maps")
    for each in found:
        weight = each.get("weight")
        if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int)):
            raise StageFailedError(f"a weight of {manifest.describe()} must be a whole number")
    return found


def _host(destination: dict[str, Any]) -> Any:
    return find_map(destination, "destination").get("host")


def _weigh(
    destinations: list[dict[str, Any]], host: str, shares: Shares, label: VariantLabel
) -> list[dict[str, Any]]:
    """Returns the destinations of the variants, then those of other hosts as they are."""
    others = [each for each in destinations if _host(each) != host]
    like = next(each for each in destinations if _host(each) == host)
    left = split(max(0, ALL - sum(each.get("weight") or 0 for each in others)), shares)
    weights = [(label.primary_value, left.primary)]
    if shares.canary:
        weights.append((label.canary_value, left.canary))
    if shares.baseline:
        weights.append((label.baseline_value, left.baseline))
    return [_destination(like, host, subset, weight) for subset, weight in weights] + others


def _destination(like: dict[str, Any], host: str, subset: str, weight: int) -> dict[str, Any]:
    """Returns a destination for a variant; its port and headers are those that git has."""
    destination = {"host": host, "subset": subset}
    if (port := find_map(like, "destination").get("port")) is not None:
        destination["port"] = port
    kept = {key: value for key, value in like.items() if key not in {"destination", "weight"}}
    return {"destination": destination, "weight": weight, **kept}
