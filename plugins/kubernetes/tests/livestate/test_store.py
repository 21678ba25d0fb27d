# SPDX-License-Identifier: Apache-2.0
"""Owners and dependents of all levels, and which applications a change concerns."""

from pipecd_plugin_kubernetes.livestate.records import LiveObject
from pipecd_plugin_kubernetes.livestate.store import LiveStore
from pipecd_plugin_kubernetes.livestate.tree import build_tree, make_cluster_problem

from pipecd_sdk import Health
from pipecd_test_support.live_cluster import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    SECRET,
    record,
)


def names(records: list[LiveObject]) -> list[str]:
    return [each.name for each in records]


def filled() -> LiveStore:
    store = LiveStore()
    for each in (
        record(DEPLOYMENT, "web", application="app"),
        record(REPLICA_SET, "web-1", owner="web"),
        record(POD, "web-1-a", owner="web-1"),
        record(CONFIG_MAP, "settings", application="app"),
        record(DEPLOYMENT, "other", application="other"),
        record(POD, "stranger", owner="nobody"),
    ):
        store.put(each)
    return store


def test_the_tree_has_dependents_of_all_levels_below_their_owners() -> None:
    resources = build_tree(filled().walk("app"))

    assert [(each.kind, each.name, list(each.parents)) for each in resources] == [
        ("ConfigMap", "settings", []),
        ("Deployment", "web", []),
        ("ReplicaSet", "web-1", ["uid-web"]),
        ("Pod", "web-1-a", ["uid-web-1"]),
    ]
    assert resources[1].metadata == {
        "Namespace": "shop",
        "API Version": "apps/v1",
        "Kind": "Deployment",
    }
    assert resources[1].created_at is not None


def test_a_change_of_a_pod_concerns_the_application_of_its_deployment() -> None:
    store = filled()

    changed = store.put(record(POD, "web-1-a", owner="web-1", status={"phase": "Running"}))

    assert changed == {"app"}


def test_what_is_the_same_is_no_change() -> None:
    store = filled()

    assert store.put(record(POD, "web-1-a", owner="web-1", version="77")) == set()


def test_what_is_gone_concerns_its_application_and_is_in_no_tree() -> None:
    store = filled()

    assert store.remove("uid-web-1-a") == {"app"}
    assert store.remove("uid-web-1-a") == set()
    assert names(list(store.walk("app"))).count("web-1-a") == 0


def test_an_object_that_changes_hands_concerns_both() -> None:
    store = filled()

    changed = store.put(record(CONFIG_MAP, "settings", application="other"))

    assert changed == {"app", "other"}
    assert "settings" not in names(list(store.walk("app")))
    assert "settings" in names(list(store.walk("other")))


def test_a_dependent_that_comes_before_its_owner_is_found_when_the_owner_is_there() -> None:
    """Watches of different kinds keep no order between them."""
    store = LiveStore()
    assert store.put(record(POD, "a", owner="web-1")) == set()
    store.put(record(REPLICA_SET, "web-1", owner="web"))

    assert store.put(record(DEPLOYMENT, "web", application="app")) == {"app"}
    assert names(list(store.walk("app"))) == ["web", "web-1", "a"]


def test_a_new_list_of_a_kind_removes_what_is_not_in_it_and_nothing_of_other_kinds() -> None:
    store = filled()

    changed = store.replace_kind(POD, [record(POD, "web-1-b", owner="web-1")])

    assert changed == {"app"}
    assert names(list(store.walk("app")))[2:] == ["web-1", "web-1-b"]
    assert len(store) == 5


def test_owners_in_a_circle_end() -> None:
    store = LiveStore()
    store.put(record(POD, "a", owner="b"))
    store.put(record(POD, "b", owner="a"))
    store.put(record(DEPLOYMENT, "web", application="app"))

    assert store.find_applications(record(POD, "a", owner="b")) == set()
    assert names(list(store.walk("app"))) == ["web"]


def test_only_what_the_application_applied_is_managed() -> None:
    store = filled()
    store.put(record(SECRET, "token", application="app", owner="web"))

    assert sorted(names(store.find_managed("app"))) == ["settings", "web"]


def test_a_kind_that_cannot_be_read_is_in_the_tree_and_unknown() -> None:
    (first, *_) = build_tree(filled().walk("app"), {SECRET: "you may not list secrets"})

    assert (first.health, first.description) == (Health.UNKNOWN, "you may not list secrets")
    assert first.name == "secrets cannot be read"


def test_a_cluster_that_cannot_be_read_is_unknown() -> None:
    made = make_cluster_problem("prod", "no answer")

    assert (made.health, made.kind, made.description) == (Health.UNKNOWN, "Cluster", "no answer")
