# SPDX-License-Identifier: Apache-2.0
"""What is kept of an object: little, only of those that belong to somebody, whatever its shape."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.livestate.records import (
    LiveObject,
    compute_digest,
    make_record,
    strip_unwritten,
)

from pipecd_sdk import Health
from pipecd_test_support.live_cluster import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    healthy_pod,
    make_object,
    record,
)


def test_an_object_that_belongs_to_nobody_is_not_kept() -> None:
    assert make_record(make_object(CONFIG_MAP, "a"), CONFIG_MAP) is None


def test_an_object_of_an_application_is_managed_unless_somebody_owns_it() -> None:
    kept = record(CONFIG_MAP, "a", application="app", labels={"x": "y"})
    owned = record(POD, "b", application="app", owner="web")

    assert (kept.is_managed, kept.application, kept.labels["x"]) == (True, "app", "y")
    assert (owned.is_managed, owned.labels) == (False, {})


def test_a_dependent_has_its_health_and_no_body() -> None:
    kept = make_record(healthy_pod("a", owner="web"), POD)

    assert kept is not None
    assert (kept.health, kept.owners, kept.digest) == (Health.HEALTHY, ("uid-web",), b"")
    assert kept.created_seconds == 1767323045


def test_an_item_of_a_list_has_the_kind_of_the_list() -> None:
    body = healthy_pod("a", owner="web")
    del body["kind"], body["apiVersion"]

    kept = make_record(body, POD)

    assert kept is not None
    assert kept.health is Health.HEALTHY


def test_the_digest_changes_with_what_people_write_and_with_nothing_else() -> None:
    body = make_object(DEPLOYMENT, "web", application="app", spec={"replicas": 1})
    same = make_object(
        DEPLOYMENT,
        "web",
        application="app",
        spec={"replicas": 1},
        version="2",
        status={"replicas": 1},
    )
    other = make_object(DEPLOYMENT, "web", application="app", spec={"replicas": 2})
    labelled = make_object(
        DEPLOYMENT, "web", application="app", spec={"replicas": 1}, labels={"a": "b"}
    )

    assert compute_digest(body) == compute_digest(same)
    assert len({compute_digest(each) for each in (body, other, labelled)}) == 3


def test_bookkeeping_is_not_compared() -> None:
    body = make_object(
        DEPLOYMENT,
        "web",
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"},
        status={"replicas": 1},
        spec={},
    )

    assert strip_unwritten(body) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "annotations": {"mine": "1"},
            "labels": {},
        },
        "spec": {},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "uid": JSON,
        "name": JSON,
        "annotations": JSON | st.just({"pipecd.dev/application": "app"}),
        "labels": JSON,
        "ownerReferences": JSON | st.lists(st.fixed_dictionaries({"uid": JSON}), max_size=2),
        "creationTimestamp": JSON,
    },
)


@given(metadata=METADATA | JSON, status=JSON)
def test_no_shape_of_an_object_raises(metadata: Any, status: Any) -> None:
    made = make_record({"metadata": metadata, "status": status}, POD)
    assert made is None or isinstance(made, LiveObject)
