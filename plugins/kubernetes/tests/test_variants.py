# SPDX-License-Identifier: Apache-2.0
"""The manifests of primary, canary and baseline."""

from typing import Any

import pytest
from pipecd_plugin_kubernetes.config import (
    KubernetesOptions,
    ResourceReference,
    VariantLabel,
    WorkloadReference,
)
from pipecd_plugin_kubernetes.config_hash import add_config_hashes
from pipecd_plugin_kubernetes.manifest import Manifest, ManifestError, parse_manifests
from pipecd_plugin_kubernetes.metadata import add_builtin
from pipecd_plugin_kubernetes.variants import (
    add_selector_labels,
    count_variant,
    make_services,
    make_variant,
)

from pipecd_sdk import Replicas

OPTIONS = KubernetesOptions()
TEXT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      imagePullSecrets: [{name: pull}, {name: foreign}]
      volumes:
      - {name: a, configMap: {name: conf}}
      - {name: b, secret: {secretName: pass}}
      - name: c
        projected: {sources: [{configMap: {name: conf}}, {secret: {name: pass}}]}
      - {name: d, configMap: {name: foreign}}
      initContainers:
      - {name: i, image: "i:1", envFrom: [{configMapRef: {name: conf}}, {secretRef: {name: pass}}]}
      containers:
      - name: c
        image: web:1
        env:
        - {name: A, valueFrom: {configMapKeyRef: {name: conf, key: k}}}
        - {name: B, valueFrom: {secretKeyRef: {name: pass, key: k}}}
        - {name: C, value: conf}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 10.0.0.1
  clusterIPs: [10.0.0.1]
  externalIPs: [1.2.3.4]
  loadBalancerIP: 1.2.3.4
  loadBalancerSourceRanges: [0.0.0.0/0]
  externalTrafficPolicy: Local
  ports: [{port: 80, nodePort: 30080, targetPort: http}]
  selector: {app: web}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: conf, namespace: shop}, data: {k: v}}
---
{apiVersion: v1, kind: Secret, metadata: {name: pass, namespace: shop}, stringData: {k: v}}
---
{apiVersion: v1, kind: Secret, metadata: {name: pull, namespace: shop}, data: {}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: foreign, namespace: other}, data: {}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}}
"""


def manifests() -> list[Manifest]:
    return add_builtin(
        parse_manifests(TEXT, origin="a"), piped_id="p", application_id="a", commit="c"
    )


def make(
    given: list[Manifest], options: KubernetesOptions = OPTIONS, **config: Any
) -> list[Manifest]:
    chosen: dict[str, Any] = {
        "variant": "canary",
        "suffix": "canary",
        "replicas": Replicas(number=1),
    }
    return make_variant(given, options, **(chosen | config))


def canary(**config: Any) -> list[Manifest]:
    given = manifests()
    made = make(given, **config)
    assert given == manifests(), "what is given is not changed"
    return made


def test_a_canary_has_names_of_its_own_in_order() -> None:
    made = canary(create_service=True)
    assert [str(each.key) for each in made] == [
        ":Service:shop:web-canary",
        ":ConfigMap:shop:conf-canary",
        ":ConfigMap:other:foreign-canary",
        ":Secret:shop:pass-canary",
        ":Secret:shop:pull-canary",
        "apps:Deployment:shop:web-canary",
    ]
    for each in made:
        assert each.annotations["pipecd.dev/resource-key"] == str(each.key)
        assert each.labels["pipecd.dev/application"] == "a"


def test_a_canary_uses_the_copies_of_what_is_copied_and_nothing_else() -> None:
    pod = canary()[-1].body["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull-canary"}, {"name": "foreign"}]
    assert pod["volumes"] == [
        {"name": "a", "configMap": {"name": "conf-canary"}},
        {"name": "b", "secret": {"secretName": "pass-canary"}},
        {
            "name": "c",
            "projected": {
                "sources": [
                    {"configMap": {"name": "conf-canary"}},
                    {"secret": {"name": "pass-canary"}},
                ]
            },
        },
        # A ConfigMap of that name is copied in another namespace, where no pod of this one is.
        {"name": "d", "configMap": {"name": "foreign"}},
    ]
    assert pod["initContainers"][0]["envFrom"] == [
        {"configMapRef": {"name": "conf-canary"}},
        {"secretRef": {"name": "pass-canary"}},
    ]
    assert pod["containers"][0]["env"] == [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf-canary", "key": "k"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "pass-canary", "key": "k"}}},
        {"name": "C", "value": "conf"},
    ]


def test_a_canary_selects_its_own_pods() -> None:
    spec = canary(replicas=Replicas(number=50, is_percentage=True))[-1].body["spec"]
    labels = {"app": "web", "pipecd.dev/variant": "canary"}
    assert spec["selector"]["matchLabels"] == labels
    assert spec["template"]["metadata"]["labels"] == labels
    assert spec["replicas"] == 2


def test_the_service_of_a_variant_is_within_the_cluster() -> None:
    service = canary(create_service=True)[0]
    assert service.body["spec"] == {
        "type": "ClusterIP",
        "ports": [{"port": 80, "targetPort": "http"}],
        "selector": {"app": "web", "pipecd.dev/variant": "canary"},
    }


def test_a_service_without_an_address_stays_one() -> None:
    given = parse_manifests(TEXT.replace("10.0.0.1", "None"), origin="a")
    made = make(given, create_service=True)
    assert made[0].body["spec"]["clusterIP"] == "None"


def test_the_canary_restarts_with_its_configuration_and_only_then() -> None:
    def read(text: str) -> str:
        made = make(parse_manifests(text, origin="a"))
        add_config_hashes(made)
        annotations = made[-1].body["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["pipecd.dev/config-hash"])

    before = read(TEXT)
    assert read(TEXT) == before
    assert read(TEXT.replace("data: {k: v}", "data: {k: w}")) != before
    assert read(TEXT.replace("replicas: 4", "replicas: 5")) == before


def test_the_label_and_its_values_may_be_others() -> None:
    options = KubernetesOptions(variant_label=VariantLabel(key="v", canary_value="green"))
    made = make(manifests(), options, variant="green", suffix="green")
    assert made[-1].name == "web-green"
    assert made[-1].body["spec"]["selector"]["matchLabels"]["v"] == "green"


def test_only_named_workloads_and_services_have_a_variant() -> None:
    given = manifests()
    extra = [each.copy() for each in given[:2]]
    for each in extra:
        each.metadata["name"] = "api"
    options = KubernetesOptions(
        workloads=(WorkloadReference(name="api"),), service=ResourceReference(name="api")
    )
    made = make([*given, *extra], options, create_service=True)
    assert [each.name for each in made if each.kind in {"Deployment", "Service"}] == [
        "api-canary",
        "api-canary",
    ]


def test_what_has_no_variant_is_said() -> None:
    def refuse(given: list[Manifest], options: KubernetesOptions = OPTIONS, **config: Any) -> str:
        with pytest.raises(ManifestError) as caught:
            make(given, options, **config)
        return caught.value.reason()

    stateful = Manifest(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}}
    )
    named = KubernetesOptions(workloads=(WorkloadReference(kind="StatefulSet"),))
    assert "no manifests" in refuse([])
    assert "no workload to make a canary of (variants are made of Deployments)" in refuse(
        [stateful]
    )
    assert "a canary of StatefulSet db cannot be made" in refuse([stateful], named)
    assert "there is no Service to make one for the canary of" in refuse(
        manifests()[:1], create_service=True
    )
    assert "longer than 253" in refuse(manifests(), suffix="x" * 260)
    broken = manifests()[0]
    broken.body["spec"]["selector"] = "app"
    assert "spec.selector must be a map, it is a text" in refuse([broken])


def test_a_primary_can_have_a_selector_and_a_service_of_its_own() -> None:
    given = manifests()
    made = add_selector_labels(given, OPTIONS)
    labels = {"app": "web", "pipecd.dev/variant": "primary"}
    assert made[0].body["spec"]["selector"]["matchLabels"] == labels
    assert made[0].body["spec"]["template"]["metadata"]["labels"] == labels
    assert made[1:] == given[1:]
    assert given == manifests(), "what is given is not changed"
    (service,) = make_services(given, OPTIONS, suffix="stable", variant="primary")
    assert str(service.key) == ":Service:shop:web-stable"
    assert service.annotations["pipecd.dev/resource-key"] == ":Service:shop:web-stable"
    assert service.body["spec"]["selector"] == labels


@pytest.mark.parametrize(
    ("current", "setting", "expected"),
    [
        (None, "50%", 1),
        (4, None, 1),
        (4, 3, 3),
        (4, "10%", 1),
        (5, "50%", 3),
        (4, "100%", 4),
        (4, 0, 1),
        (None, 3, 3),
    ],
)
def test_how_many_replicas_a_variant_has(current: int | None, setting: Any, expected: int) -> None:
    workload = manifests()[0]
    workload.body["spec"]["replicas"] = current
    replicas = Replicas() if setting is None else Replicas.from_config(setting)
    assert count_variant(workload, replicas) == expected


def test_a_percentage_is_of_what_runs_where_git_does_not_say() -> None:
    """An autoscaler has the number; git leaves it out."""
    workload = manifests()[0]
    half = Replicas.from_config("50%")
    assert count_variant(workload, half, lambda _: 10) == 2, "git says 4"
    del workload.body["spec"]["replicas"]
    assert count_variant(workload, half, lambda _: 10) == 5
    assert count_variant(workload, half, lambda _: None) == 1
