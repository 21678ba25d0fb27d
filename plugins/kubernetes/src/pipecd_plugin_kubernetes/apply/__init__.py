# SPDX-License-Identifier: Apache-2.0
"""Brings manifests to a cluster, takes away what is no longer wanted, waits until it is ready.

    applied = await apply_manifests(cluster, manifests, log=ctx.log)
    await prune(cluster, application_id=…, keep=manifests, applied=applied, log=ctx.log)
    await wait_ready(cluster, applied, log=ctx.log, within=timedelta(minutes=10))

Everything may be done again after a kill at any point: what is there already is left as it is.
All failures are StageFailedErrors with a sentence for people.
"""

from pipecd_plugin_kubernetes.apply.applier import apply_manifests
from pipecd_plugin_kubernetes.apply.body import prepare_body
from pipecd_plugin_kubernetes.apply.managed import ListingError, Variant, find_managed
from pipecd_plugin_kubernetes.apply.outcome import (
    Applied,
    AppliedObject,
    ApplyEffect,
    ApplyError,
    DeletionFailedError,
    DeletionRefusedError,
    Limits,
    NotReadyError,
)
from pipecd_plugin_kubernetes.apply.prune import DeletionPermission, prune, remove_variant
from pipecd_plugin_kubernetes.apply.readiness import wait_ready
from pipecd_plugin_kubernetes.apply.replicas import find_scale_targets, find_scaler
from pipecd_plugin_kubernetes.apply.single import FAIL_ON_CONFLICT

__all__ = [
    "FAIL_ON_CONFLICT",
    "Applied",
    "AppliedObject",
    "ApplyEffect",
    "ApplyError",
    "DeletionFailedError",
    "DeletionPermission",
    "DeletionRefusedError",
    "Limits",
    "ListingError",
    "NotReadyError",
    "Variant",
    "apply_manifests",
    "find_managed",
    "find_scale_targets",
    "find_scaler",
    "prepare_body",
    "prune",
    "remove_variant",
    "wait_ready",
]
