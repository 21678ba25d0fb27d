# SPDX-License-Identifier: Apache-2.0
"""The stages of variants: a canary of the new beside the primary, a baseline of what runs."""

from collections.abc import Sequence

from pipecd_plugin_kubernetes.apply.replicas import has_replicas, read_replicas
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey
from pipecd_plugin_kubernetes.patches import apply_patches
from pipecd_plugin_kubernetes.stage_config import (
    BaselineRolloutConfig,
    CanaryRolloutConfig,
    CleanConfig,
)
from pipecd_plugin_kubernetes.stages.ledger import get_live
from pipecd_plugin_kubernetes.stages.prepare import mark
from pipecd_plugin_kubernetes.stages.pruning import remove_variants, value_of
from pipecd_plugin_kubernetes.stages.run import TargetRun
from pipecd_plugin_kubernetes.variants import CountReplicas, make_variant
from pipecd_plugin_kubernetes.workloads import find_workloads
from pipecd_sdk import StageFailedError


async def roll_out_canary(run: TargetRun, config: CanaryRolloutConfig) -> None:
    """Applies some of the commit's workloads beside the primary, under other names."""
    manifests = await run.load_target()
    commit = run.deployment.commit.hash
    patched = apply_patches(manifests, config.patches)
    await _roll_out(run, "canary", patched, run.options, config, commit=commit)


async def roll_out_baseline(run: TargetRun, config: BaselineRolloutConfig) -> None:
    """Applies some of the workloads that run beside the primary, to compare the canary with."""
    running, options = run.ctx.source.running, run.running_options
    if running is None or options is None:
        raise StageFailedError(
            "there is nothing to make a baseline of: no earlier commit was deployed here"
        )
    manifests = await run.load_running()
    await _roll_out(run, "baseline", manifests, options, config, commit=running.commit_hash)


async def clean_canary(run: TargetRun, _config: CleanConfig) -> None:
    """Removes the canary."""
    await remove_variants(run, "canary")


async def clean_baseline(run: TargetRun, _config: CleanConfig) -> None:
    """Removes the baseline."""
    await remove_variants(run, "baseline")


async def _count_running(
    run: TargetRun, manifests: Sequence[Manifest], options: KubernetesOptions
) -> CountReplicas:
    """Returns how many replicas run of the workloads for which git does not say it."""
    counts: dict[ResourceKey, int | None] = {}
    for workload in find_workloads(manifests, options.workloads):
        if not has_replicas(workload):
            live = await get_live(run.cluster, workload)
            counts[workload.key] = None if live is None else read_replicas(live)
    return lambda workload: counts.get(workload.key)


async def _roll_out(
    run: TargetRun,
    name: str,
    manifests: Sequence[Manifest],
    options: KubernetesOptions,
    config: CanaryRolloutConfig | BaselineRolloutConfig,
    *,
    commit: str,
) -> None:
    """Applies a variant; a rollback finds it by its label, so nothing has to be noted."""
    value = value_of(options.variant_label, name)
    made = make_variant(
        manifests,
        options,
        variant=value,
        suffix=config.suffix or value,
        replicas=config.replicas,
        create_service=config.create_service,
        count_replicas=await _count_running(run, manifests, options),
    )
    marked = mark(made, run.deployment, options, commit=commit, variant=value)
    applied = await run.apply_only(
        marked, sets_replicas=[each.key for each in marked if each.is_workload()]
    )
    await run.wait_ready(applied)
    run.log.success("the %s is rolled out: %d objects", name, len(applied))
