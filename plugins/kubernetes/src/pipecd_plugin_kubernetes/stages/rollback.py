# SPDX-License-Identifier: Apache-2.0
"""K8S_ROLLBACK: bring a deploy target back to where it was before the deployment.

What the earlier commit has is applied again, with the selectors that workloads have now (they
cannot change) and the routes that were noted. What the deployment has made is deleted, and so are
the variants. If the first part fails, the rest is left: traffic may still go there.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipecd_plugin_kubernetes.apply import Applied
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.metadata import COMMIT_HASH, add_annotations, add_labels
from pipecd_plugin_kubernetes.pipeline import list_options
from pipecd_plugin_kubernetes.stages.ledger import LedgerNotes, get_live
from pipecd_plugin_kubernetes.stages.prepare import find_router, mark
from pipecd_plugin_kubernetes.stages.pruning import delete_made, remove_variants
from pipecd_plugin_kubernetes.stages.run import TargetRun
from pipecd_plugin_kubernetes.variants import add_selector_label, make_service
from pipecd_sdk import StageFailedError


async def roll_back(run: TargetRun) -> None:
    """Brings one deploy target back. Raises StageFailedError when that is not wholly done."""
    if run.ctx.source.running is None:
        await remove_variants(run, "canary", "baseline")
        raise StageFailedError(
            "there is no earlier deployment to go back to",
            hint="what was applied stays; deploy a commit that works",
        )
    notes = await run.ledger.read()
    applied: Applied | None = None
    back = run
    if run.running_options is not None:
        back = replace(run, options=run.running_options)
        applied = await back.apply_only(await _restore(back, notes), goes_back=True)
    else:
        run.log.info("the earlier commit was not deployed here: what this one made is removed")
    await delete_made(run, notes.made)
    await remove_variants(run, "canary", "baseline")
    if applied is not None:
        await back.wait_ready(applied)
    run.log.success("back to where it was before the deployment")


async def _restore(run: TargetRun, notes: LedgerNotes) -> list[Manifest]:
    """Returns what is applied to restore the earlier commit."""
    running = run.ctx.source.running
    commit = running.commit_hash if running is not None else ""
    manifests = [each.copy() for each in await run.load_running()]
    await _keep_selectors(run, manifests)
    manifests += _make_kept_services(manifests, notes, run.options)
    marked = mark(manifests, run.deployment, run.options, commit=commit)
    router = find_router(marked, run.options)
    if router is not None and not await _restore_routes(run, router, notes):
        marked = [each for each in marked if each is not router]
    return marked


async def _keep_selectors(run: TargetRun, manifests: Sequence[Manifest]) -> None:
    """Adds the variant's label to the selectors that have it now; a selector cannot change."""
    label = run.options.variant_label
    for manifest in manifests:
        selector = find_map(manifest.body, "spec", "selector", "matchLabels")
        if not manifest.is_workload() or not selector or label.key in selector:
            continue
        live = await get_live(run.cluster, manifest)
        if live is None:
            has_label = _adds_selector_labels(run)
        else:
            has_label = label.key in find_map(live, "spec", "selector", "matchLabels")
        if has_label:
            add_selector_label(manifest, key=label.key, value=label.primary_value)


def _adds_selector_labels(run: TargetRun) -> bool:
    """Returns whether deploying the earlier commit anew would add the label to selectors."""
    running = run.ctx.source.running
    if run.options.quick_sync.add_variant_label_to_selector or running is None:
        return True
    key = "addVariantLabelToSelector"
    return any(given is True for given in list_options(running, "_PRIMARY_ROLLOUT", key))


def _make_kept_services(
    manifests: Sequence[Manifest], notes: LedgerNotes, options: KubernetesOptions
) -> list[Manifest]:
    """Returns the primary's own Services that an earlier K8S_PRIMARY_ROLLOUT has made."""
    made = []
    for kept in notes.kept:
        for service in manifests:
            prefix = f"{service.name}-"
            if not (kept.is_service() and service.is_service() and kept.name.startswith(prefix)):
                continue
            if kept.namespace == service.namespace:
                suffix = kept.name.removeprefix(prefix)
                variant = options.variant_label.primary_value
                made.append(make_service(service, options, suffix=suffix, variant=variant))
    return made


async def _restore_routes(run: TargetRun, router: Manifest, notes: LedgerNotes) -> bool:
    """Gives a router the routes that were noted; returns whether it has to be applied."""
    noted = notes.find_routing(router)
    if noted is None:
        # No stage has changed it: what there is is how it was.
        return await get_live(run.cluster, router) is None
    if isinstance(noted.get("spec"), dict):
        router.body["spec"] = noted["spec"]
    if isinstance(commit := noted.get("commit"), str) and commit:
        add_labels(router, {COMMIT_HASH: commit})
        add_annotations(router, {COMMIT_HASH: commit})
    return True
