# SPDX-License-Identifier: Apache-2.0
"""K8S_TRAFFIC_ROUTING: say what part of the traffic each variant gets."""

from pipecd_plugin_kubernetes.client import ObjectRef
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.stage_config import TrafficConfig
from pipecd_plugin_kubernetes.stages.prepare import find_router, mark
from pipecd_plugin_kubernetes.stages.run import TargetRun
from pipecd_plugin_kubernetes.stages.traffic.gateway import name_services, route_by_http_route
from pipecd_plugin_kubernetes.stages.traffic.istio import route_by_virtual_service
from pipecd_plugin_kubernetes.stages.traffic.podselector import route_by_selector
from pipecd_plugin_kubernetes.stages.traffic.shares import Shares, shares_of
from pipecd_sdk import StageFailedError


async def route_traffic(run: TargetRun, config: TrafficConfig) -> None:
    """Applies the one manifest that routes the traffic, with the shares of the stage."""
    manifests = list(await run.load_target())
    shares = shares_of(config)
    method = run.options.traffic_routing.method
    if method == "istio":
        routed = route_by_virtual_service(manifests, shares, run.options)
    elif method == "gateway":
        routed = route_by_http_route(manifests, shares, run.options)
        await _check_services(run, manifests, routed, shares)
    else:
        routed = route_by_selector(manifests, config, run.options)
    commit = run.deployment.commit.hash
    marked = mark([routed], run.deployment, run.options, commit=commit)
    router = find_router(marked, run.options)
    await run.apply(marked, routing=[router] if router is not None else [])
    run.log.success("traffic by %s: %s", routed.describe(), shares)


async def _check_services(
    run: TargetRun, manifests: list[Manifest], routed: Manifest, shares: Shares
) -> None:
    """Raises StageFailedError when a variant would get traffic and has no Service."""
    names = name_services(manifests, run.options)
    resource = await run.cluster.find_resource("v1", "Service")
    namespace = (await run.cluster.ref_of(routed.body)).namespace
    for variant, name in names.items():
        if not getattr(shares, variant):
            continue
        if await run.cluster.get(ObjectRef(resource, namespace, name)) is None:
            raise StageFailedError(
                f"the {variant} has no Service {name!r} that it could get traffic by",
                hint=f"give createService: true to the stage that rolls out the {variant}",
            )
