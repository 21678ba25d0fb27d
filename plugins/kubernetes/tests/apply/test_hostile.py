# SPDX-License-Identifier: Apache-2.0
"""A server may say anything: wrong shapes are passed over or told, never a traceback."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.apply.field_sets import restrict, subtract, unite
from pipecd_plugin_kubernetes.apply.managed import is_applied_by
from pipecd_plugin_kubernetes.apply.pods import find_troubles, format_selector, is_ready
from pipecd_plugin_kubernetes.apply.prerequisites import describe_hold, find_defined_kinds
from pipecd_plugin_kubernetes.apply.readiness import judge
from pipecd_plugin_kubernetes.apply.replicas import (
    ScaleTarget,
    find_scale_targets,
    find_scaler,
    read_replicas,
)
from pipecd_plugin_kubernetes.apply.takeover import plan_managed_fields, read_last_applied
from pipecd_plugin_kubernetes.apply.unchanged import is_applied
from pipecd_plugin_kubernetes.manifest import Manifest

from pipecd_test_support.apply_contract import deployment

WEB = deployment("default", "web")
TARGET = ScaleTarget("apps", "Deployment", "default", "web")

WORDS = st.sampled_from(
    [
        *("metadata", "spec", "status", "managedFields", "fieldsV1", "manager", "operation"),
        *("subresource", "annotations", "labels", "ownerReferences", "finalizers", "conditions"),
        *("f:spec", "f:replicas", "f:metadata", "f:annotations", 'k:{"name":"a"}', "v:1", "i:0"),
        *("containerStatuses", "state", "waiting", "terminated", "exitCode", "restartCount"),
        *("selector", "matchLabels", "matchExpressions", "scaleTargetRef", "replicas", "paused"),
        *("type", "reason", "message", "name", "piped", "Apply", "Update", "True", "apps/v1"),
        "kubectl.kubernetes.io/last-applied-configuration",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=4),
    max_leaves=25,
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "manager": VALUES | st.just("piped") | st.just("helm"),
            "operation": st.sampled_from(["Apply", "Update"]) | VALUES,
            "apiVersion": st.just("apps/v1") | VALUES,
            "time": VALUES,
            "subresource": st.just("scale") | VALUES,
            "fieldsV1": VALUES,
        },
    ),
    max_size=4,
)
BODIES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["Deployment", "StatefulSet", "DaemonSet", "Pod"])},
    optional={"metadata": VALUES, "spec": VALUES, "status": VALUES, "apiVersion": VALUES},
)


@given(ENTRIES, VALUES)
def test_records_of_owners_of_any_shape_are_read(entries: list[Any], rest: Any) -> None:
    live = {"metadata": {"managedFields": entries, "annotations": rest}, "spec": rest}

    plan_managed_fields(live, WEB, release=("spec", "replicas"))
    find_scaler(live, TARGET, {})
    read_last_applied(live)
    assert not is_applied(WEB.body, live)


@given(BODIES)
def test_objects_of_any_shape_are_judged(body: dict[str, Any]) -> None:
    judge(body)
    describe_hold(body)
    format_selector(body)
    find_troubles([body])
    is_ready(body)
    is_applied_by(body, "a")
    read_replicas(body)
    find_scale_targets([body], namespace="default")
    find_defined_kinds([Manifest(body)])


@given(VALUES, VALUES)
def test_sets_of_any_shape_are_united_and_split(one: Any, other: Any) -> None:
    unite(one, other)
    restrict(one, other)
    assert subtract(one, one) == {}
    left = subtract(one, other)
    assert subtract(left, other) == left


@pytest.mark.parametrize("name", ["x\x1b[2J\ny", "m" * 10_000])
def test_the_name_of_a_manager_is_shown_as_one_short_line(name: str) -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:pipecd.dev/managed-by": {}}}}
    entry = {
        "manager": name,
        "operation": "Update",
        "apiVersion": "apps/v1",
        "fieldsV1": fields,
    }

    planned = plan_managed_fields({"metadata": {"managedFields": [entry]}}, WEB)

    assert planned is not None
    assert len(planned[1][0]) <= 128
    assert planned[1][0].isprintable()
