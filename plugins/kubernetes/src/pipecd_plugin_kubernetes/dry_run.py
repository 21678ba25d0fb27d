# SPDX-License-Identifier: Apache-2.0
"""Asks the server what applying a manifest would change, without changing anything.

Only the server knows defaults, webhooks and whose field is whose. Where it does not let itself be
asked, fields are compared without it, and that is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipecd_plugin_kubernetes.apply.body import prepare_body
from pipecd_plugin_kubernetes.apply.pod_marks import adopt_digest, choose_mark, write_mark
from pipecd_plugin_kubernetes.apply.replicas import (
    ScaleTarget,
    find_scaler,
    has_replicas,
    read_replicas,
)
from pipecd_plugin_kubernetes.client import (
    ApiError,
    Cluster,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Object,
    ObjectRef,
    TooLargeError,
)
from pipecd_plugin_kubernetes.differences import compare_exactly, compare_structurally
from pipecd_plugin_kubernetes.livestate.records import strip_unwritten
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_sdk.kit.diff import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What applying a manifest would change."""

    nodes: Sequence[Node]
    """From what is there to what would be, as they are: nothing is masked."""
    refusal: str = ""
    """Why the server did not say it, in its words; then fields were compared without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunner:
    """Makes dry runs on one cluster."""

    cluster: Cluster
    autoscaled: Mapping[ScaleTarget, str] = field(default_factory=dict)
    """Workloads that autoscalers scale: their number of replicas makes no difference."""

    async def compare(self, manifest: Manifest, ref: ObjectRef, live: Object) -> DryRun:
        """Returns what applying would change of an object that is there.

        Raises ClusterError when the server cannot be asked at all.
        """
        body = self._prepare(manifest, ref, live)
        there = strip_unwritten(live)
        try:
            after = await self.cluster.apply(body, force=True, dry_run=True)
        except (
            ForbiddenError,
            InvalidError,
            ConflictError,
            NotFoundError,
            TooLargeError,
        ) as error:
            return _compare_alone(there, body, error)
        except ApiError as error:
            # A webhook that cannot be reached, or answers wrongly, is the server's 500.
            if not _is_webhook(error):
                raise
            return _compare_alone(there, body, error)
        return DryRun(nodes=compare_exactly(there, strip_unwritten(after)))

    async def check(self, manifest: Manifest, ref: ObjectRef) -> str:
        """Returns why the server would refuse an object that is not there yet; empty if not.

        Raises ClusterError when the server cannot be asked, or does not let itself be.
        """
        try:
            await self.cluster.apply(prepare_body(manifest, ref), force=True, dry_run=True)
        except (InvalidError, ConflictError) as error:
            return error.reason()
        return ""

    def _prepare(self, manifest: Manifest, ref: ObjectRef, live: Object) -> Object:
        body = prepare_body(manifest, ref)
        if has_replicas(manifest):
            resource = ref.resource
            target = ScaleTarget(resource.group, resource.kind, ref.namespace, ref.name)
            replicas = read_replicas(live)
            if replicas is not None and find_scaler(live, target, self.autoscaled):
                # Not left out: the field might be ours alone yet, and would be removed.
                body["spec"] = {**body["spec"], "replicas": replicas}
        write_mark(body, choose_mark(body, live, is_unchanged=True))
        adopt_digest(body, live)
        return body


def _compare_alone(there: Mapping[str, Any], body: Object, error: ApiError) -> DryRun:
    return DryRun(nodes=compare_structurally(there, strip_unwritten(body)), refusal=error.reason())


def _is_webhook(error: ApiError) -> bool:
    return "webhook" in f"{error} {error.message}".lower()
