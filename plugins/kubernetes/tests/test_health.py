# SPDX-License-Identifier: Apache-2.0
"""The health of an object: each row of the table, kinds of others, and bodies of any shape."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.fields import LONGEST_TEXT
from pipecd_plugin_kubernetes.health import GOOD_CONDITIONS, assess

from pipecd_sdk import Health

H, U, X = Health.HEALTHY, Health.UNHEALTHY, Health.UNKNOWN


def body(
    api: str, kind: str, *, generation: int = 1, spec: Any = None, status: Any = None
) -> dict[str, Any]:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": "it", "generation": generation},
        "spec": spec,
        "status": status,
    }


def condition(name: str, status: str, reason: str = "", message: str = "", **more: Any) -> Any:
    return {"type": name, "status": status, "reason": reason, "message": message, **more}


def rolled_out(**changes: Any) -> dict[str, Any]:
    return {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "availableReplicas": 2,
        "readyReplicas": 2,
        **changes,
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"name": "app", "state": {"waiting": {"reason": reason, "message": message}}}


TWO = {"replicas": 2}
LATE = [condition("Progressing", "False", "ProgressDeadlineExceeded", "it timed out")]
BLOCKED = [condition("ReplicaFailure", "True", "FailedCreate", "quota exceeded")]
UNSCHEDULED = [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")]
ON_NODES = {
    "observedGeneration": 1,
    "desiredNumberScheduled": 3,
    "updatedNumberScheduled": 3,
    "numberAvailable": 3,
}

DEPLOYMENTS = [
    (1, TWO, rolled_out(), H, ""),
    (1, {**TWO, "paused": True}, rolled_out(), X, "paused"),
    (2, TWO, rolled_out(), X, "not yet seen"),
    (1, TWO, rolled_out(conditions=LATE), U, "it timed out"),
    (1, {}, rolled_out(), X, "spec.replicas"),
    (1, TWO, rolled_out(updatedReplicas=1), U, "1 of 2 replicas are updated"),
    (1, TWO, rolled_out(replicas=3), U, "1 old replicas"),
    (1, TWO, rolled_out(availableReplicas=0), U, "0 of 2 replicas are available"),
    (1, {"replicas": 0}, {"observedGeneration": 1}, H, ""),
    (1, TWO, None, X, "not yet seen"),
]
STATEFUL_SETS = [
    (1, TWO, rolled_out(), H, ""),
    (1, TWO, rolled_out(observedGeneration=0), X, "not yet seen"),
    (2, TWO, rolled_out(), X, "not yet seen"),
    (1, {}, rolled_out(), X, "spec.replicas"),
    (1, TWO, rolled_out(readyReplicas=1), U, "1 of 2 replicas are ready"),
    (
        1,
        {**TWO, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
        rolled_out(updatedReplicas=0),
        U,
        "0 of 1 replicas are updated",
    ),
    (
        1,
        {**TWO, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
        rolled_out(updatedReplicas=1, currentRevision="a", updateRevision="b"),
        H,
        "",
    ),
    (
        1,
        {**TWO, "updateStrategy": {"type": "RollingUpdate"}},
        rolled_out(currentRevision="a", updateRevision="b", updatedReplicas=1),
        U,
        "1 of 2 replicas are updated",
    ),
    (
        1,
        {**TWO, "updateStrategy": {"type": "OnDelete"}},
        rolled_out(currentRevision="a", updateRevision="b"),
        H,
        "",
    ),
]
REPLICA_SETS = [
    (1, TWO, rolled_out(), H, ""),
    (1, TWO, rolled_out(observedGeneration=0), X, "not yet seen"),
    (1, TWO, rolled_out(conditions=BLOCKED), U, "quota exceeded"),
    (1, {}, rolled_out(), X, "spec.replicas"),
    (1, TWO, rolled_out(availableReplicas=1), U, "1 of 2 replicas are available"),
    (1, TWO, rolled_out(readyReplicas=3), U, "3 replicas are ready where 2"),
]
DAEMON_SETS = [
    (1, None, ON_NODES, H, ""),
    (2, None, ON_NODES, X, "not yet seen"),
    (1, None, {**ON_NODES, "updatedNumberScheduled": 1}, U, "updated on 1 of 3"),
    (1, None, {**ON_NODES, "numberAvailable": 2}, U, "available on 2 of 3"),
    (1, None, {**ON_NODES, "numberMisscheduled": 1}, U, "where it should not"),
    (1, None, {**ON_NODES, "numberUnavailable": 1}, U, "1 more nodes"),
]


@pytest.mark.parametrize(
    ("kind", "generation", "spec", "status", "health", "reason"),
    [
        (kind, *row)
        for kind, rows in (
            ("Deployment", DEPLOYMENTS),
            ("StatefulSet", STATEFUL_SETS),
            ("ReplicaSet", REPLICA_SETS),
            ("DaemonSet", DAEMON_SETS),
        )
        for row in rows
    ],
)
def test_a_workload_is_healthy_when_its_rollout_is_complete(
    kind: str, generation: int, spec: Any, status: Any, health: Health, reason: str
) -> None:
    found, why = assess(body("apps/v1", kind, generation=generation, spec=spec, status=status))
    assert (found, reason in why) == (health, True), why
    assert bool(why) is (health is not H)


@pytest.mark.parametrize(
    ("policy", "status", "health", "reason"),
    [
        ("Always", {"phase": "Running"}, H, ""),
        ("Never", {"phase": "Succeeded"}, H, ""),
        ("Always", {"phase": "Failed", "message": "evicted"}, U, "it is Failed: evicted"),
        ("Always", {"phase": "Pending", "conditions": UNSCHEDULED}, U, "0/3 nodes"),
        ("Always", {}, U, "no phase"),
        (
            "Always",
            {"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff", "back-off")]},
            U,
            "container app: CrashLoopBackOff: back-off",
        ),
        ("Always", {"phase": "Running", "containerStatuses": [waiting("ErrImagePull")]}, U, "Err"),
        ("", {"phase": "Running", "containerStatuses": [waiting("InvalidError")]}, U, "Invalid"),
        ("Never", {"phase": "Running", "containerStatuses": [waiting("ImagePullBackOff")]}, H, ""),
        (
            "Always",
            {"phase": "Running", "containerStatuses": [waiting("ContainerCreating")]},
            H,
            "",
        ),
        (
            "Always",
            {"phase": "Pending", "initContainerStatuses": [waiting("CrashLoopBackOff")]},
            U,
            "CrashLoopBackOff",
        ),
    ],
)
def test_a_pod_is_healthy_when_it_runs_or_ran_and_none_of_its_containers_fails(
    policy: str, status: Any, health: Health, reason: str
) -> None:
    found, why = assess(body("v1", "Pod", spec={"restartPolicy": policy}, status=status))
    assert (found, reason in why) == (health, True), why


ADDRESS = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}
STUCK = [condition("NamespaceDeletionContentFailure", "True", "", "finalizers remain")]
ROUTED = {
    "parents": [{"parentRef": {"name": "edge"}, "conditions": [condition("Accepted", "True")]}]
}
REFUSED = {
    "parents": [
        {
            "parentRef": {"name": "edge"},
            "conditions": [condition("Accepted", "False", "NoMatchingListener")],
        }
    ]
}


@pytest.mark.parametrize(
    ("api", "kind", "spec", "status", "health"),
    [
        ("batch/v1", "Job", None, None, H),
        ("batch/v1", "Job", None, {"conditions": [condition("Complete", "True")]}, H),
        ("batch/v1", "Job", None, {"conditions": [condition("Failed", "True")]}, U),
        ("batch/v1", "Job", None, {"conditions": [condition("Failed", "False")]}, H),
        ("v1", "Service", {"type": "ClusterIP"}, None, H),
        ("v1", "Service", {"type": "LoadBalancer"}, None, U),
        ("v1", "Service", {"type": "LoadBalancer"}, ADDRESS, H),
        ("networking.k8s.io/v1", "Ingress", None, None, U),
        ("networking.k8s.io/v1", "Ingress", None, ADDRESS, H),
        ("v1", "PersistentVolume", None, {"phase": "Bound"}, H),
        ("v1", "PersistentVolume", None, {"phase": "Available"}, H),
        ("v1", "PersistentVolume", None, {"phase": "Released"}, U),
        ("v1", "PersistentVolumeClaim", None, {"phase": "Bound"}, H),
        ("v1", "PersistentVolumeClaim", None, {"phase": "Pending"}, U),
        ("v1", "PersistentVolumeClaim", None, {"phase": "Lost"}, U),
        ("v1", "Namespace", None, {"phase": "Active"}, H),
        ("v1", "Namespace", None, {"phase": "Terminating"}, U),
        ("v1", "Namespace", None, {"phase": "Active", "conditions": STUCK}, U),
        *(
            (api, kind, None, None, H)
            for api, kind in (
                ("v1", "ConfigMap"),
                ("v1", "Secret"),
                ("v1", "ServiceAccount"),
                ("rbac.authorization.k8s.io/v1", "Role"),
                ("rbac.authorization.k8s.io/v1", "RoleBinding"),
                ("rbac.authorization.k8s.io/v1", "ClusterRole"),
                ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
                ("batch/v1", "CronJob"),
                ("policy/v1", "PodDisruptionBudget"),
                ("networking.istio.io/v1", "VirtualService"),
            )
        ),
        ("autoscaling/v2", "HorizontalPodAutoscaler", None, None, H),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            None,
            {"conditions": [condition("ScalingActive", "False", "FailedGetResourceMetric")]},
            U,
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            None,
            {"conditions": [condition("ScalingActive", "False", "ScalingDisabled")]},
            H,
        ),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", None, None, X),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", None, ROUTED, H),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", None, REFUSED, U),
    ],
)
def test_other_built_in_kinds_follow_the_table(
    api: str, kind: str, spec: Any, status: Any, health: Health
) -> None:
    found, why = assess(body(api, kind, spec=spec, status=status))
    assert found is health, why
    assert bool(why) is (health is not H)


@pytest.mark.parametrize(
    ("generation", "status", "health", "reason"),
    [
        (1, None, X, "no condition"),
        (1, {"conditions": [condition("Odd", "True")]}, X, "no condition"),
        *((1, {"conditions": [condition(name, "True")]}, H, "") for name in GOOD_CONDITIONS),
        (1, {"conditions": [condition("Ready", "False", "NoIssuer", "no x")]}, U, "NoIssuer: no x"),
        (1, {"conditions": [condition("Ready", "Unknown")]}, X, "Ready is Unknown"),
        (
            1,
            {"conditions": [condition("Ready", "True"), condition("Synced", "False")]},
            U,
            "Synced",
        ),
        (
            1,
            {"conditions": [condition("Ready", "True"), condition("Stalled", "True")]},
            U,
            "Stalled",
        ),
        (1, {"conditions": [condition("Ready", "True"), condition("Failed", "False")]}, H, ""),
        (1, {"conditions": [condition("Reconciling", "True")]}, X, "Reconciling"),
        (1, {"conditions": [condition("Complete", "True")]}, H, ""),
        (1, {"conditions": [condition("Complete", "False")]}, X, "no condition"),
        (3, {"observedGeneration": 2, "conditions": [condition("Ready", "True")]}, X, "not yet"),
        (3, {"conditions": [condition("Ready", "True", observedGeneration=2)]}, X, "not yet"),
        (3, {"conditions": [condition("Ready", "True", observedGeneration=3)]}, H, ""),
    ],
)
def test_a_kind_of_others_is_judged_by_the_usual_conditions(
    generation: int, status: Any, health: Health, reason: str
) -> None:
    found, why = assess(body("example.com/v1", "Thing", generation=generation, status=status))
    assert (found, reason in why) == (health, True), why


def test_a_kind_of_others_with_a_built_in_name_is_not_taken_for_the_built_in_one() -> None:
    found, _ = assess(body("example.com/v1", "ConfigMap"))
    assert found is X


def test_a_wrong_shape_is_unknown_and_names_the_place() -> None:
    found, why = assess(
        body("apps/v1", "Deployment", spec={"replicas": "two"}, status=rolled_out())
    )
    assert (found, why) == (X, "the object has a text at 'spec.replicas', where a number belongs")


def test_a_message_of_the_cluster_becomes_one_short_printable_line() -> None:
    """It ends in terminals: escape sequences and megabytes stop here."""
    hostile = "\x1b[31mred\nnext line " + "x" * 10_000
    status = {"conditions": [condition("Ready", "False", "", hostile)]}
    _, why = assess(body("example.com/v1", "Thing", status=status))
    assert len(why) == LONGEST_TEXT
    assert why.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KINDS = st.sampled_from(
    [
        *(("apps/v1", each) for each in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")),
        *(("v1", each) for each in ("Pod", "Service", "PersistentVolume", "Namespace")),
        ("v1", "PersistentVolumeClaim"),
        ("batch/v1", "Job"),
        ("networking.k8s.io/v1", "Ingress"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("gateway.networking.k8s.io/v1", "HTTPRoute"),
        ("example.com/v1", "Thing"),
    ]
)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "conditions": JSON | st.lists(JSON, max_size=2),
        "containerStatuses": JSON | st.lists(JSON, max_size=2),
        "parents": JSON | st.lists(JSON, max_size=2),
        "loadBalancer": JSON,
        "replicas": JSON,
        "observedGeneration": JSON,
        "phase": JSON,
        "updateStrategy": JSON,
    },
)


@given(kind=KINDS, metadata=JSON, spec=JSON | PARTS, status=JSON | PARTS)
def test_no_body_raises(kind: tuple[str, str], metadata: Any, spec: Any, status: Any) -> None:
    found, why = assess(
        {
            "apiVersion": kind[0],
            "kind": kind[1],
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }
    )
    assert isinstance(found, Health)
    assert (found is H) is (why == "")


@given(anything=st.dictionaries(st.sampled_from(["apiVersion", "kind", "metadata"]), JSON))
def test_a_body_without_a_kind_does_not_raise(anything: dict[str, Any]) -> None:
    found, _ = assess(anything)
    assert isinstance(found, Health)
