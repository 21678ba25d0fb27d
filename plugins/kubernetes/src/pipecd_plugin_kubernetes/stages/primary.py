# SPDX-License-Identifier: Apache-2.0
"""K8S_PRIMARY_ROLLOUT: bring the primary to the commit, and leave the traffic as it is routed."""

from collections.abc import Sequence

from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.pipeline import has_stage
from pipecd_plugin_kubernetes.stage_config import PrimaryRolloutConfig
from pipecd_plugin_kubernetes.stages.prepare import find_router, mark
from pipecd_plugin_kubernetes.stages.pruning import prune_primary
from pipecd_plugin_kubernetes.stages.run import TargetRun
from pipecd_plugin_kubernetes.variants import add_selector_labels, make_services
from pipecd_plugin_kubernetes.workloads import find_workloads
from pipecd_sdk import StageFailedError


async def roll_out_primary(run: TargetRun, config: PrimaryRolloutConfig) -> None:
    """Applies all manifests but the one with the weights, and prunes if that is asked for."""
    variant = run.options.variant_label.primary_value
    manifests = list(await run.load_target())
    if config.add_variant_label_to_selector:
        manifests = add_selector_labels(manifests, run.options)
    elif _moves_by_selector(run):
        _check_labels(manifests, run)
    if config.create_service:
        suffix = config.suffix or variant
        manifests += make_services(manifests, run.options, suffix=suffix, variant=variant)
    commit = run.deployment.commit.hash
    marked = mark(manifests, run.deployment, run.options, commit=commit)
    router = find_router(marked, run.options)
    if router is not None:
        run.log.info("%s is left as it is: traffic stays as it is routed", router.key)
    applied = await run.apply([each for each in marked if each is not router])
    if config.prune:
        await prune_primary(
            run,
            applied,
            kept=[router] if router is not None else [],
            variant=variant,
        )
    run.log.success("the primary is rolled out: %d objects", len(applied))


def _moves_by_selector(run: TargetRun) -> bool:
    """Returns whether a stage of the pipeline moves traffic by a pod selector."""
    if run.options.traffic_routing.method != "podselector":
        return False
    return has_stage(run.ctx.source.target, "_TRAFFIC_ROUTING")


def _check_labels(manifests: Sequence[Manifest], run: TargetRun) -> None:
    """Raises StageFailedError unless the primary's pods can be told from other variants'."""
    label = run.options.variant_label
    unlabelled = [
        each
        for each in find_workloads(manifests, run.options.workloads)
        if any(
            find_map(each.body, "spec", *place).get(label.key) != label.primary_value
            for place in (("selector", "matchLabels"), ("template", "metadata", "labels"))
        )
    ]
    if unlabelled:
        named = ", ".join(each.describe() for each in unlabelled)
        raise StageFailedError(
            f"{named}: selector and pods do not have {label.key}: {label.primary_value}, "
            "so traffic of the primary would reach other variants",
            hint="add it to the manifest, or give the stage addVariantLabelToSelector: true",
        )
