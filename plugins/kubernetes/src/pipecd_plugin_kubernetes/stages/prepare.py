# SPDX-License-Identifier: Apache-2.0
"""Makes manifests into those that are applied: marked as this application's, and as a variant."""

from collections.abc import Sequence

from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.config_hash import add_config_hashes
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.metadata import add_builtin, add_variant
from pipecd_plugin_kubernetes.stages.traffic.gateway import find_http_route
from pipecd_plugin_kubernetes.stages.traffic.istio import find_virtual_service
from pipecd_sdk import Deployment


def mark(
    manifests: Sequence[Manifest],
    deployment: Deployment,
    options: KubernetesOptions,
    *,
    commit: str,
    variant: str = "",
) -> list[Manifest]:
    """Returns copies with all that PipeCD adds.

    `variant` is the value of the variant's label; without it that of the primary.
    """
    label = options.variant_label
    marked = add_builtin(
        manifests,
        piped_id=deployment.piped_id,
        application_id=deployment.application_id,
        commit=commit,
    )
    add_variant(marked, key=label.key, value=variant or label.primary_value)
    add_config_hashes(marked)
    return marked


def find_router(manifests: Sequence[Manifest], options: KubernetesOptions) -> Manifest | None:
    """Returns the manifest that has the weights of the traffic, None when there is none.

    A Service is not one: by a pod selector there are no weights.
    """
    method = options.traffic_routing.method
    if method == "istio":
        return find_virtual_service(manifests, options)
    return find_http_route(manifests, options) if method == "gateway" else None
