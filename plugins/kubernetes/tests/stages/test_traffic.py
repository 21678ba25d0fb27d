# SPDX-License-Identifier: Apache-2.0
"""How traffic is split: by pod selector, by VirtualService, by HTTPRoute."""

from typing import Any

import pytest
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.manifest import Manifest, parse_manifests
from pipecd_plugin_kubernetes.stage_config import TrafficConfig
from pipecd_plugin_kubernetes.stages.traffic.gateway import route_by_http_route
from pipecd_plugin_kubernetes.stages.traffic.istio import route_by_virtual_service
from pipecd_plugin_kubernetes.stages.traffic.podselector import choose_variant, route_by_selector
from pipecd_plugin_kubernetes.stages.traffic.shares import Shares, shares_of

from pipecd_sdk import StageFailedError
from pipecd_sdk.config import read_value

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web, pipecd.dev/variant: primary}, ports: [{port: 80}]}
"""
PLAIN_SERVICE = SERVICE.replace(", pipecd.dev/variant: primary", "")


def options(**given: Any) -> KubernetesOptions:
    return read_value(KubernetesOptions, given, path=())[0]


def traffic(**given: Any) -> TrafficConfig:
    return read_value(TrafficConfig, given, path=())[0]


def manifests(*texts: str) -> list[Manifest]:
    return [each for text in texts for each in parse_manifests(text, origin="file")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Shares(primary=100)),
        ({"all": "canary"}, Shares(primary=0, canary=100)),
        ({"all": "baseline"}, Shares(primary=0, baseline=100)),
        ({"all": "primary", "canary": 10}, Shares(primary=100)),
        ({"canary": "30%", "baseline": 10}, Shares(primary=60, canary=30, baseline=10)),
        ({"primary": 70, "canary": 30}, Shares(primary=70, canary=30)),
    ],
)
def test_what_nobody_else_gets_is_the_primarys(given: dict[str, Any], expected: Shares) -> None:
    assert shares_of(traffic(**given)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"all": "canary"}, "canary"),
        ({"all": "primary"}, "primary"),
        ({"primary": 100}, "primary"),
        ({"canary": 100}, "canary"),
    ],
)
def test_a_pod_selector_moves_all_traffic(given: dict[str, Any], expected: str) -> None:
    assert choose_variant(traffic(**given)) == expected


@pytest.mark.parametrize(
    "given",
    [{}, {"primary": 50, "canary": 50}, {"all": "baseline"}, {"canary": 90, "baseline": 10}],
)
def test_a_pod_selector_can_do_nothing_else(given: dict[str, Any]) -> None:
    with pytest.raises(StageFailedError, match="pod selector"):
        choose_variant(traffic(**given))


def test_the_selector_of_the_service_gets_the_variants_value() -> None:
    given = manifests(SERVICE)

    routed = route_by_selector(given, traffic(all="canary"), options())

    assert routed.body["spec"]["selector"] == {"app": "web", "pipecd.dev/variant": "canary"}
    assert given[0].body["spec"]["selector"]["pipecd.dev/variant"] == "primary"


def test_a_service_that_selects_all_variants_cannot_be_moved() -> None:
    with pytest.raises(StageFailedError, match=r"does not have pipecd\.dev/variant: primary"):
        route_by_selector(manifests(PLAIN_SERVICE), traffic(all="canary"), options())


def test_the_named_service_is_moved_and_a_missing_one_is_said() -> None:
    both = manifests(SERVICE.replace("web}\nspec", "other}\nspec"), SERVICE)

    routed = route_by_selector(both, traffic(all="canary"), options(service={"name": "web"}))

    assert routed.name == "web"
    with pytest.raises(StageFailedError, match="no Service 'gone'"):
        route_by_selector(both, traffic(all="canary"), options(service={"name": "gone"}))


def virtual_service(spec: str) -> str:
    return (
        "apiVersion: networking.istio.io/v1beta1\nkind: VirtualService\n"
        f"metadata: {{name: web}}\nspec: {spec}\n"
    )


ISTIO = {"method": "istio"}
FOREIGN = virtual_service(
    "{http: [{route: ["
    "{destination: {host: web, subset: primary}, weight: 80}, "
    "{destination: {host: legacy}, weight: 20}]}]}"
)


def weights(manifest: Manifest, kind: str = "http", number: int = 0) -> list[tuple[str, str, int]]:
    route = manifest.body["spec"][kind][number]["route"]
    return [
        (each["destination"]["host"], each["destination"].get("subset", ""), each.get("weight", 0))
        for each in route
    ]


def test_other_hosts_keep_their_weight_and_the_variants_share_the_rest() -> None:
    shares = shares_of(traffic(canary=30, baseline=10))

    routed = route_by_virtual_service(
        manifests(SERVICE, FOREIGN), shares, options(trafficRouting=ISTIO)
    )

    assert weights(routed) == [
        ("web", "primary", 48),
        ("web", "canary", 24),
        ("web", "baseline", 8),
        ("legacy", "", 20),
    ]


def test_variants_without_traffic_are_not_named() -> None:
    routed = route_by_virtual_service(
        manifests(SERVICE, FOREIGN), Shares(primary=100), options(trafficRouting=ISTIO)
    )

    assert weights(routed) == [("web", "primary", 80), ("legacy", "", 20)]


def test_routes_of_connections_are_weighed_too() -> None:
    """Upstream knows those of requests only."""
    spec = (
        "{tcp: [{route: [{destination: {host: web, port: {number: 9000}}}]}], "
        "tls: [{match: [{sniHosts: [a]}], route: [{destination: {host: web}}]}]}"
    )

    routed = route_by_virtual_service(
        manifests(SERVICE, virtual_service(spec)),
        Shares(primary=90, canary=10),
        options(trafficRouting=ISTIO),
    )

    assert weights(routed, "tcp") == [("web", "primary", 90), ("web", "canary", 10)]
    assert weights(routed, "tls") == [("web", "primary", 90), ("web", "canary", 10)]
    ports = [each["destination"]["port"] for each in routed.body["spec"]["tcp"][0]["route"]]
    assert ports == [{"number": 9000}, {"number": 9000}]


def test_only_named_routes_are_changed() -> None:
    spec = (
        "{http: [{name: a, route: [{destination: {host: web}}]}, "
        "{name: b, route: [{destination: {host: web}}]}], "
        "tcp: [{route: [{destination: {host: web}}]}]}"
    )
    routing = {**ISTIO, "istio": {"editableRoutes": ["b"]}}

    routed = route_by_virtual_service(
        manifests(SERVICE, virtual_service(spec)),
        Shares(primary=90, canary=10),
        options(trafficRouting=routing),
    )

    assert weights(routed) == [("web", "", 0)]
    assert weights(routed, number=1) == [("web", "primary", 90), ("web", "canary", 10)]
    assert weights(routed, "tcp") == [("web", "", 0)]


def test_a_route_to_somewhere_else_and_a_redirect_are_left_alone() -> None:
    spec = (
        "{http: [{route: [{destination: {host: api}}]}, {redirect: {uri: /}}, "
        "{route: [{destination: {host: web}}]}]}"
    )

    routed = route_by_virtual_service(
        manifests(SERVICE, virtual_service(spec)),
        Shares(primary=0, canary=100),
        options(trafficRouting=ISTIO),
    )

    assert weights(routed) == [("api", "", 0)]
    assert routed.body["spec"]["http"][1] == {"redirect": {"uri": "/"}}
    assert weights(routed, number=2) == [("web", "primary", 0), ("web", "canary", 100)]


def test_the_host_is_that_of_the_options_or_the_service() -> None:
    spec = "{http: [{route: [{destination: {host: web.shop.svc}}]}]}"
    given = manifests(SERVICE, virtual_service(spec))

    named = options(trafficRouting={**ISTIO, "istio": {"host": "web.shop.svc"}})

    assert weights(route_by_virtual_service(given, Shares(primary=100), named)) == [
        ("web.shop.svc", "primary", 100)
    ]
    with pytest.raises(StageFailedError, match="leads to the host 'web'"):
        route_by_virtual_service(given, Shares(primary=100), options(trafficRouting=ISTIO))


def test_a_virtual_service_is_found_by_name_and_a_missing_one_is_said() -> None:
    named = options(trafficRouting={**ISTIO, "istio": {"virtualService": {"name": "gone"}}})

    with pytest.raises(StageFailedError, match="no VirtualService 'gone'"):
        route_by_virtual_service(manifests(SERVICE, FOREIGN), Shares(primary=100), named)
    with pytest.raises(StageFailedError, match="no VirtualService among"):
        route_by_virtual_service(
            manifests(SERVICE), Shares(primary=100), options(trafficRouting=ISTIO)
        )


@pytest.mark.parametrize(
    "spec",
    [
        "{http: web}",
        "{http: [web]}",
        "{http: [{route: web}]}",
        "{http: [{route: [web]}]}",
        "{http: [{route: [{destination: {host: web}, weight: many}]}]}",
    ],
)
def test_a_virtual_service_of_another_shape_is_a_sentence(spec: str) -> None:
    with pytest.raises(StageFailedError, match="VirtualService web"):
        route_by_virtual_service(
            manifests(SERVICE, virtual_service(spec)),
            Shares(primary=100),
            options(trafficRouting=ISTIO),
        )


def http_route(rules: str) -> str:
    return (
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n"
        f"metadata: {{name: web}}\nspec: {{rules: {rules}}}\n"
    )


GATEWAY = {"method": "gateway"}


def backends(manifest: Manifest, number: int = 0) -> list[tuple[str, int]]:
    refs = manifest.body["spec"]["rules"][number]["backendRefs"]
    return [(each["name"], each.get("weight", 1)) for each in refs]


def test_the_backends_of_a_rule_get_the_shares_as_weights() -> None:
    routed = route_by_http_route(
        manifests(SERVICE, http_route("[{backendRefs: [{name: web, port: 80}]}]")),
        Shares(primary=70, canary=20, baseline=10),
        options(trafficRouting=GATEWAY),
    )

    assert backends(routed) == [("web", 70), ("web-canary", 20), ("web-baseline", 10)]
    assert all(each["port"] == 80 for each in routed.body["spec"]["rules"][0]["backendRefs"])


def test_other_backends_keep_their_part_of_the_traffic() -> None:
    rule = "[{backendRefs: [{name: web, weight: 3}, {name: old, weight: 1}]}]"

    routed = route_by_http_route(
        manifests(SERVICE, http_route(rule)),
        Shares(primary=90, canary=10),
        options(trafficRouting=GATEWAY),
    )

    assert backends(routed) == [("web", 27), ("web-canary", 3), ("old", 10)]


def test_only_named_rules_and_those_of_the_service_are_changed() -> None:
    rules = (
        "[{name: a, backendRefs: [{name: web}]}, {name: b, backendRefs: [{name: web}]}, "
        "{name: b, backendRefs: [{name: api}]}]"
    )
    routing = {**GATEWAY, "gateway": {"editableRules": ["b"], "canaryService": "next"}}

    routed = route_by_http_route(
        manifests(SERVICE, http_route(rules)),
        Shares(primary=0, canary=100),
        options(trafficRouting=routing),
    )

    assert backends(routed, 0) == [("web", 1)]
    assert backends(routed, 1) == [("web", 0), ("next", 100)]
    assert backends(routed, 2) == [("api", 1)]


def test_a_primary_service_that_selects_all_variants_is_refused() -> None:
    """The canary would get its own share and a part of the primary's."""
    given = manifests(PLAIN_SERVICE, http_route("[{backendRefs: [{name: web}]}]"))

    with pytest.raises(StageFailedError, match="to all variants"):
        route_by_http_route(given, Shares(primary=90, canary=10), options(trafficRouting=GATEWAY))
    assert backends(
        route_by_http_route(given, Shares(primary=100), options(trafficRouting=GATEWAY))
    ) == [("web", 100)]


@pytest.mark.parametrize(
    "rules",
    [
        "web",
        "[web]",
        "[{backendRefs: web}]",
        "[{backendRefs: [web]}]",
        "[{backendRefs: [{name: web, weight: -1}]}]",
        "[{backendRefs: [{name: api}]}]",
    ],
)
def test_an_http_route_of_another_shape_is_a_sentence(rules: str) -> None:
    with pytest.raises(StageFailedError, match="HTTPRoute web"):
        route_by_http_route(
            manifests(SERVICE, http_route(rules)),
            Shares(primary=100),
            options(trafficRouting=GATEWAY),
        )
