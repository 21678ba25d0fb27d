# SPDX-License-Identifier: Apache-2.0
"""All traffic to one variant, by the selector of the Service."""

from collections.abc import Sequence

from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.manifest import Manifest, find_map, open_map
from pipecd_plugin_kubernetes.stage_config import TrafficConfig
from pipecd_plugin_kubernetes.stages.traffic.shares import ALL
from pipecd_sdk import StageFailedError


def choose_variant(config: TrafficConfig) -> str:
    """Returns the variant that gets everything. Raises StageFailedError when there is none."""
    if config.all == "baseline" or config.baseline:
        raise StageFailedError(
            "a pod selector cannot send traffic to the baseline",
            hint="trafficRouting.method: istio or gateway can",
        )
    if config.all:
        return config.all
    chosen = [name for name in ("primary", "canary") if getattr(config, name) == ALL]
    if len(chosen) != 1:
        raise StageFailedError(
            "a pod selector sends all traffic to one variant: "
            f"primary is {config.primary or 0}, canary {config.canary or 0}",
            hint="write all: primary or all: canary, or trafficRouting.method: istio or gateway",
        )
    return chosen[0]


def route_by_selector(
    manifests: Sequence[Manifest], config: TrafficConfig, options: KubernetesOptions
) -> Manifest:
    """Returns the Service with the selector of the chosen variant. Raises StageFailedError."""
    variant = choose_variant(config)
    label = options.variant_label
    service = find_service(manifests, options).copy()
    if find_map(service.body, "spec", "selector").get(label.key) != label.primary_value:
        raise StageFailedError(
            f"the selector of {service.describe()} does not have {label.key}: "
            f"{label.primary_value}, so it cannot be moved to another variant",
            hint="add it to the manifest of the Service, and to the pods of the workload",
        )
    value = label.canary_value if variant == "canary" else label.primary_value
    open_map(service.body, "spec", "selector")[label.key] = value
    return service


def find_service(manifests: Sequence[Manifest], options: KubernetesOptions) -> Manifest:
    """Returns the Service that traffic comes in by. Raises StageFailedError."""
    name = options.service.name
    for manifest in manifests:
        if manifest.is_service() and name in {"", manifest.name}:
            return manifest
    raise StageFailedError(
        f"there is no Service {name!r} among the manifests"
        if name
        else "there is no Service among the manifests",
        hint="name the one that traffic comes in by, as service.name of the application",
    )
