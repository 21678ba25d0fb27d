# SPDX-License-Identifier: Apache-2.0
"""Whether an object of a cluster is healthy, from its own fields. Pure.

A built-in kind has a rule of its own. Every other kind is judged by `status.conditions`, see
`_assess_conditions`. An object whose controller has not yet seen its latest change, or whose shape
nobody knows, is UNKNOWN, with a sentence.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pipecd_plugin_kubernetes.fields import (
    ShapeError,
    has_true,
    read_count,
    read_map,
    read_maps,
    read_number,
    read_text,
    shorten,
)
from pipecd_sdk import Health

Object = Mapping[str, Any]
Verdict = tuple[Health, str]

_HEALTHY: Final[Verdict] = (Health.HEALTHY, "")
_UNOBSERVED: Final[Verdict] = (
    Health.UNKNOWN,
    "its controller has not yet seen the latest change of it",
)
_WITHOUT_REPLICAS: Final[Verdict] = (Health.UNKNOWN, "spec.replicas is not set")

GOOD_CONDITIONS: Final = (
    *("Ready", "Available", "Healthy", "Reconciled", "Synced", "Succeeded"),
    *("Established", "NamesAccepted", "Accepted", "Programmed", "ResolvedRefs"),
)
"""Conditions that are True on a healthy object; all that are there count."""
BAD_CONDITIONS: Final = ("Stalled", "Failed", "Failure", "Degraded", "ReplicaFailure", "Error")
"""Conditions that are True on an object in trouble."""
BUSY_CONDITIONS: Final = ("Reconciling", "Initializing")
"""Conditions that are True while a controller works on the object."""
DONE_CONDITIONS: Final = ("Complete", "Completed")
"""Conditions that are True at the end, and say nothing before."""


def assess(body: Object) -> Verdict:
    """Returns the health of an object, and a sentence that says why it is not healthy.

    Never raises: an object of an unexpected shape is UNKNOWN.
    """
    try:
        group = read_text(body, "apiVersion").rpartition("/")[0]
        kind = read_text(body, "kind")
        rule = _RULES.get((group, kind))
        if rule is not None:
            return rule(body)
        if (group, kind) in _PLAIN or group in _PLAIN_GROUPS:
            return _HEALTHY
        return _assess_conditions(body)
    except ShapeError as error:
        return Health.UNKNOWN, shorten(str(error))


def _make_unhealthy(reason: str) -> Verdict:
    return Health.UNHEALTHY, shorten(reason)


def _is_behind(body: Object) -> bool:
    return read_count(body, "metadata", "generation") > read_count(
        body, "status", "observedGeneration"
    )


def _is_unobserved(body: Object) -> bool:
    return read_count(body, "status", "observedGeneration") == 0 or _is_behind(body)


def _find_condition(body: Object, name: str) -> Object:
    """Returns the condition of a type, an empty object where there is none."""
    for condition in read_maps(body, "status", "conditions"):
        if read_text(condition, "type") == name:
            return condition
    return {}


def _is_true(condition: Object) -> bool:
    return read_text(condition, "status") == "True"


def _format_condition(condition: Object) -> str:
    """Returns e.g. `Ready is False: DoesNotExist: Issuer "x" not found`."""
    parts = (
        f"{read_text(condition, 'type')} is {read_text(condition, 'status') or 'empty'}",
        read_text(condition, "reason"),
        read_text(condition, "message"),
    )
    return ": ".join(part for part in parts if part)


def _assess_deployment(body: Object) -> Verdict:
    if has_true(body, "spec", "paused"):
        return Health.UNKNOWN, "it is paused"
    if _is_behind(body):
        return _UNOBSERVED
    progressing = _find_condition(body, "Progressing")
    if read_text(progressing, "reason") == "ProgressDeadlineExceeded":
        return _make_unhealthy(
            "it made no progress within its deadline: "
            f"{read_text(progressing, 'message') or 'spec.progressDeadlineSeconds has passed'}"
        )
    desired = read_number(body, "spec", "replicas")
    if desired is None:
        return _WITHOUT_REPLICAS
    updated, total, available = (
        read_count(body, "status", name)
        for name in ("updatedReplicas", "replicas", "availableReplicas")
    )
    if updated < desired:
        return _make_unhealthy(f"{updated} of {desired} replicas are updated")
    if updated < total:
        return _make_unhealthy(f"{total - updated} old replicas are still there")
    if available < total:
        return _make_unhealthy(f"{available} of {total} replicas are available")
    return _HEALTHY


def _assess_stateful_set(body: Object) -> Verdict:
    if _is_unobserved(body):
        return _UNOBSERVED
    desired = read_number(body, "spec", "replicas")
    if desired is None:
        return _WITHOUT_REPLICAS
    ready, updated = (
        read_count(body, "status", name) for name in ("readyReplicas", "updatedReplicas")
    )
    if ready != desired:
        return _make_unhealthy(f"{ready} of {desired} replicas are ready")
    strategy = read_map(body, "spec", "updateStrategy")
    if read_text(strategy, "type") == "OnDelete":
        return _HEALTHY
    if read_map(strategy, "rollingUpdate"):
        wanted = max(0, desired - read_count(strategy, "rollingUpdate", "partition"))
        if updated < wanted:
            return _make_unhealthy(f"{updated} of {wanted} replicas are updated")
        return _HEALTHY
    old, new = (read_text(body, "status", name) for name in ("currentRevision", "updateRevision"))
    if old != new:
        return _make_unhealthy(f"{updated} of {desired} replicas are updated")
    return _HEALTHY


def _assess_replica_set(body: Object) -> Verdict:
    if _is_unobserved(body):
        return _UNOBSERVED
    failure = _find_condition(body, "ReplicaFailure")
    if _is_true(failure):
        return _make_unhealthy(
            read_text(failure, "message") or "pods of it cannot be created or deleted"
        )
    desired = read_number(body, "spec", "replicas")
    if desired is None:
        return _WITHOUT_REPLICAS
    available, ready = (
        read_count(body, "status", name) for name in ("availableReplicas", "readyReplicas")
    )
    if available < desired:
        return _make_unhealthy(f"{available} of {desired} replicas are available")
    if ready != desired:
        return _make_unhealthy(f"{ready} replicas are ready where {desired} should be")
    return _HEALTHY


def _assess_daemon_set(body: Object) -> Verdict:
    if _is_unobserved(body):
        return _UNOBSERVED
    desired, updated, available, misplaced, away = (
        read_count(body, "status", name)
        for name in (
            "desiredNumberScheduled",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberMisscheduled",
            "numberUnavailable",
        )
    )
    if updated < desired:
        return _make_unhealthy(f"its pod is updated on {updated} of {desired} nodes")
    if available < desired:
        return _make_unhealthy(f"its pod is available on {available} of {desired} nodes")
    if misplaced > 0:
        return _make_unhealthy(f"its pod runs on {misplaced} nodes where it should not")
    if away > 0:
        return _make_unhealthy(f"its pod should run on {away} more nodes")
    return _HEALTHY


def _assess_pod(body: Object) -> Verdict:
    waiting = list(_read_waiting(body))
    failing = [text for reason, text in waiting if _is_failure(reason)]
    policy = read_text(body, "spec", "restartPolicy") or "Always"
    if failing and policy == "Always":
        return _make_unhealthy("; ".join(failing))
    phase = read_text(body, "status", "phase")
    if phase in {"Running", "Succeeded"}:
        return _HEALTHY
    if not phase:
        return _make_unhealthy("it has no phase yet")
    scheduled = _find_condition(body, "PodScheduled")
    reasons = [
        read_text(body, "status", "reason"),
        read_text(body, "status", "message"),
        read_text(scheduled, "message") if read_text(scheduled, "status") == "False" else "",
        "; ".join(failing or [text for _, text in waiting]),
    ]
    return _make_unhealthy(": ".join([f"it is {phase}", *(each for each in reasons if each)]))


def _read_waiting(body: Object) -> Iterator[tuple[str, str]]:
    """Yields the reason and a sentence for each container that waits, those before others first."""
    for name in ("initContainerStatuses", "containerStatuses"):
        for status in read_maps(body, "status", name):
            waiting = read_map(status, "state", "waiting")
            reason, message = (read_text(waiting, each) for each in ("reason", "message"))
            if reason or message:
                parts = (f"container {read_text(status, 'name')}", reason, message)
                yield reason, ": ".join(part for part in parts if part)


def _is_failure(reason: str) -> bool:
    return reason.startswith("Err") or reason.endswith(("Error", "BackOff"))


def _assess_job(body: Object) -> Verdict:
    failed = _find_condition(body, "Failed")
    if _is_true(failed):
        reason, message = (read_text(failed, each) for each in ("reason", "message"))
        return _make_unhealthy(f"it failed: {message or reason or 'no reason is given'}")
    return _HEALTHY


def _assess_service(body: Object) -> Verdict:
    if read_text(body, "spec", "type") != "LoadBalancer" or _has_address(body):
        return _HEALTHY
    return _make_unhealthy("its load balancer has no address yet")


def _assess_ingress(body: Object) -> Verdict:
    return _HEALTHY if _has_address(body) else _make_unhealthy("it has no address yet")


def _has_address(body: Object) -> bool:
    return any(True for _ in read_maps(body, "status", "loadBalancer", "ingress"))


def _assess_volume(body: Object) -> Verdict:
    phase = read_text(body, "status", "phase")
    if phase in {"Bound", "Available"}:
        return _HEALTHY
    reasons = (read_text(body, "status", name) for name in ("reason", "message"))
    return _make_unhealthy(
        ": ".join([f"it is {phase or 'without a phase'}", *(each for each in reasons if each)])
    )


def _assess_claim(body: Object) -> Verdict:
    phase = read_text(body, "status", "phase")
    if phase == "Bound":
        return _HEALTHY
    if phase == "Lost":
        return _make_unhealthy("it has lost its volume")
    return _make_unhealthy(f"it is {phase or 'without a phase'}: no volume is bound to it")


def _assess_namespace(body: Object) -> Verdict:
    for condition in read_maps(body, "status", "conditions"):
        name = read_text(condition, "type")
        if name.startswith("NamespaceDeletion") and _is_true(condition):
            return _make_unhealthy(_format_condition(condition))
    phase = read_text(body, "status", "phase")
    if phase == "Active":
        return _HEALTHY
    if phase == "Terminating":
        return _make_unhealthy("it is being deleted")
    return _make_unhealthy(f"it is {phase or 'without a phase'}")


def _assess_autoscaler(body: Object) -> Verdict:
    """An autoscaler that cannot read its metrics keeps the number of replicas, silently."""
    for name in ("AbleToScale", "ScalingActive"):
        condition = _find_condition(body, name)
        if read_text(condition, "status") != "False":
            continue
        if read_text(condition, "reason") == "ScalingDisabled":  # The target has 0 replicas.
            continue
        return _make_unhealthy(_format_condition(condition))
    return _HEALTHY


def _assess_route(body: Object) -> Verdict:
    """A route of the Gateway API has its conditions per gateway that it is attached to."""
    parents = list(read_maps(body, "status", "parents"))
    if not parents:
        return Health.UNKNOWN, "no gateway has accepted it yet"
    for parent in parents:
        health, reason = _assess_conditions({"metadata": body.get("metadata"), "status": parent})
        if health is not Health.HEALTHY:
            name = read_text(parent, "parentRef", "name")
            return health, shorten(f"gateway {name}: {reason}")
    return _HEALTHY


def _assess_conditions(body: Object) -> Verdict:
    """Judges a kind that nobody here knows by the usual names of conditions.

    A True condition of BAD_CONDITIONS is UNHEALTHY. Then a generation that the controller has not
    seen, or a True condition of BUSY_CONDITIONS, is UNKNOWN. Of GOOD_CONDITIONS every one that is
    there must be True; False is UNHEALTHY, Unknown is UNKNOWN. One of DONE_CONDITIONS is as good
    when it is True. An object with none of these is UNKNOWN.
    """
    conditions = {
        read_text(condition, "type"): condition
        for condition in read_maps(body, "status", "conditions")
    }
    found = [conditions[name] for name in BAD_CONDITIONS if name in conditions]
    for condition in found:
        if _is_true(condition):
            return _make_unhealthy(_format_condition(condition))
    generation = read_count(body, "metadata", "generation")
    if (read_number(body, "status", "observedGeneration") or generation) < generation:
        return _UNOBSERVED
    for name in BUSY_CONDITIONS:
        if _is_true(conditions.get(name, {})):
            return Health.UNKNOWN, shorten(_format_condition(conditions[name]))
    good = [conditions[name] for name in GOOD_CONDITIONS if name in conditions]
    for condition in good:
        if read_text(condition, "status") == "False":
            return _make_unhealthy(_format_condition(condition))
    for condition in good:
        if (read_number(condition, "observedGeneration") or generation) < generation:
            return _UNOBSERVED
        if not _is_true(condition):
            return Health.UNKNOWN, shorten(_format_condition(condition))
    if good or any(_is_true(conditions.get(name, {})) for name in DONE_CONDITIONS):
        return _HEALTHY
    return Health.UNKNOWN, "its status has no condition that says whether it is healthy"


_RULES: Final[Mapping[tuple[str, str], Callable[[Object], Verdict]]] = {
    **{(group, "Deployment"): _assess_deployment for group in ("apps", "extensions")},
    **{(group, "ReplicaSet"): _assess_replica_set for group in ("apps", "extensions")},
    **{(group, "DaemonSet"): _assess_daemon_set for group in ("apps", "extensions")},
    **{(group, "Ingress"): _assess_ingress for group in ("networking.k8s.io", "extensions")},
    ("apps", "StatefulSet"): _assess_stateful_set,
    ("", "ReplicationController"): _assess_replica_set,
    ("", "Pod"): _assess_pod,
    ("batch", "Job"): _assess_job,
    ("", "Service"): _assess_service,
    ("", "PersistentVolume"): _assess_volume,
    ("", "PersistentVolumeClaim"): _assess_claim,
    ("", "Namespace"): _assess_namespace,
    ("autoscaling", "HorizontalPodAutoscaler"): _assess_autoscaler,
    **{
        ("gateway.networking.k8s.io", kind): _assess_route
        for kind in ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute")
    },
}

_PLAIN: Final = frozenset(
    {
        *(("", kind) for kind in ("ConfigMap", "Secret", "ServiceAccount", "Endpoints")),
        *(("", kind) for kind in ("ResourceQuota", "LimitRange", "PodTemplate")),
        *(
            ("rbac.authorization.k8s.io", kind)
            for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        ),
        ("batch", "CronJob"),
        ("policy", "PodDisruptionBudget"),
        ("policy", "PodSecurityPolicy"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("networking.k8s.io", "IngressClass"),
        ("storage.k8s.io", "StorageClass"),
        ("apps", "ControllerRevision"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("coordination.k8s.io", "Lease"),
    }
)
"""Kinds that nothing happens to after they are stored: healthy once they are there."""
_PLAIN_GROUPS: Final = frozenset(
    {"networking.istio.io", "security.istio.io", "admissionregistration.k8s.io"}
)
"""Groups all of whose kinds are only configuration for others."""
