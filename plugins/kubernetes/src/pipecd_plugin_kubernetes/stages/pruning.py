# SPDX-License-Identifier: Apache-2.0
"""What stages delete: what git no longer has, variants, and what a failed deployment has made."""

from collections.abc import Sequence
from typing import Final

from pipecd_plugin_kubernetes.apply import (
    Applied,
    DeletionPermission,
    Limits,
    prune,
    remove_variant,
)
from pipecd_plugin_kubernetes.apply.deletion import delete_groups
from pipecd_plugin_kubernetes.apply.managed import ManagedObject, is_applied_by
from pipecd_plugin_kubernetes.apply.order import group_for_deletion, is_foundation
from pipecd_plugin_kubernetes.client import UnknownKindError
from pipecd_plugin_kubernetes.config import KubernetesOptions, VariantLabel
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.metadata import APPLICATION
from pipecd_plugin_kubernetes.stages.run import TargetRun

VARIANT_KINDS: Final = frozenset(
    {("", "Service"), ("", "ConfigMap"), ("", "Secret"), ("apps", "Deployment")}
)
"""What a variant is made of."""


async def prune_primary(
    run: TargetRun, applied: Applied, *, kept: Sequence[Manifest] = (), variant: str = ""
) -> None:
    """Deletes what the application has and is neither applied nor kept.

    With `variant`, a value of the variant's label, only objects of this variant.
    """
    await prune(
        run.cluster,
        application_id=run.deployment.application_id,
        keep=[*(each.manifest for each in applied), *kept],
        log=run.log,
        applied=applied,
        variant=(run.options.variant_label.key, variant) if variant else None,
        permission=permission_of(run.options),
    )


async def remove_variants(run: TargetRun, *names: str) -> None:
    """Deletes the canary, the baseline, or both, by the labels of both commits."""
    labels = [run.options.variant_label]
    if run.running_options is not None and run.running_options.variant_label not in labels:
        labels.append(run.running_options.variant_label)
    for label in labels:
        for name in names:
            await remove_variant(
                run.cluster,
                application_id=run.deployment.application_id,
                variant=(label.key, value_of(label, name)),
                log=run.log,
                kinds=VARIANT_KINDS,
                permission=permission_of(run.options),
            )


async def delete_made(run: TargetRun, made: Sequence[Manifest]) -> None:
    """Deletes what the deployment itself has made; others' objects of the same names stay."""
    found = []
    for manifest in made:
        if is_foundation(manifest.key) and not run.options.deletion.allow_namespaces:
            run.log.info("%s stays: others may have put something there", manifest.key)
            continue
        try:
            ref = await run.cluster.ref_of(manifest.body)
        except UnknownKindError:
            continue  # its definition was never applied, or is gone
        body = await run.cluster.get(ref)
        if body is not None and is_applied_by(body, run.deployment.application_id):
            found.append(ManagedObject(ref=ref, body=body))
    await delete_groups(
        run.cluster,
        group_for_deletion(found, lambda each: each.manifest),
        log=run.log,
        limits=Limits(),
        labels=f"{APPLICATION}={run.deployment.application_id}",
    )


def permission_of(options: KubernetesOptions) -> DeletionPermission:
    """Returns what the application's options permit to delete."""
    return DeletionPermission(
        many=options.deletion.allow_many, namespaces=options.deletion.allow_namespaces
    )


def value_of(label: VariantLabel, name: str) -> str:
    """Returns the value of the label for `canary` or `baseline`."""
    return label.canary_value if name == "canary" else label.baseline_value
