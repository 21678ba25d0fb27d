# SPDX-License-Identifier: Apache-2.0
"""The labels and annotations that mark objects as ours, as existing deployments have them."""

from pipecd_plugin_kubernetes.manifest import Manifest, parse_manifests
from pipecd_plugin_kubernetes.metadata import add_builtin, add_variant, strip_builtin

TEXT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}}}
"""
SHARED = {
    "pipecd.dev/managed-by": "piped",
    "pipecd.dev/piped": "piped-1",
    "pipecd.dev/application": "app-1",
    "pipecd.dev/commit-hash": "0123abc",
}


def deployment() -> Manifest:
    return parse_manifests(TEXT, origin="web.yaml")[0]


def test_labels_and_annotations_are_those_of_existing_deployments() -> None:
    given = deployment()
    (made,) = add_builtin([given], piped_id="piped-1", application_id="app-1", commit="0123abc")
    assert made.labels == SHARED | {"app": "web"}
    assert made.annotations == SHARED | {
        "pipecd.dev/original-api-version": "apps/v1",
        "pipecd.dev/resource-key": "apps:Deployment:shop:web",
    }
    assert made.body["spec"] == given.body["spec"], "pods would restart at every commit"
    assert given == deployment(), "what is given is not changed"


def test_without_a_commit_objects_are_equal_for_all_commits() -> None:
    (made,) = add_builtin([deployment()], piped_id="piped-1", application_id="app-1")
    assert "pipecd.dev/commit-hash" not in made.labels
    assert "pipecd.dev/commit-hash" not in made.annotations
    assert made.annotations["pipecd.dev/managed-by"] == "piped"


def test_what_was_added_is_stripped_again_and_nothing_else() -> None:
    made = add_builtin([deployment()], piped_id="p", application_id="a", commit="c")
    add_variant(made, key="pipecd.dev/variant", value="primary")
    made[0].body["spec"]["template"]["metadata"]["annotations"] = {"pipecd.dev/config-hash": "x"}
    assert made[0].labels["pipecd.dev/variant"] == "primary"
    assert made[0].annotations["pipecd.dev/variant"] == "primary"
    assert strip_builtin(made[0], also=["pipecd.dev/variant"]) == deployment()
