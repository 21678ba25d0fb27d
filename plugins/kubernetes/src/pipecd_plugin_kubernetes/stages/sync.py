# SPDX-License-Identifier: Apache-2.0
"""K8S_SYNC: bring everything to the commit at once."""

from pipecd_plugin_kubernetes.stage_config import SyncConfig
from pipecd_plugin_kubernetes.stages.prepare import find_router, mark
from pipecd_plugin_kubernetes.stages.pruning import prune_primary
from pipecd_plugin_kubernetes.stages.run import TargetRun
from pipecd_plugin_kubernetes.variants import add_selector_labels


async def sync(run: TargetRun, config: SyncConfig) -> None:
    """Applies all manifests, and prunes if that is asked for."""
    manifests = await run.load_target()
    if config.add_variant_label_to_selector:
        manifests = add_selector_labels(manifests, run.options)
    commit = run.deployment.commit.hash
    marked = mark(manifests, run.deployment, run.options, commit=commit)
    router = find_router(marked, run.options)
    applied = await run.apply(marked, routing=[router] if router is not None else [])
    if config.prune:
        await prune_primary(run, applied)
    run.log.success("applied %d objects", len(applied))
