# SPDX-License-Identifier: Apache-2.0
"""Readiness and metrics say of every part how it is."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipecd_piped.git.state import Reachability, RepositoryState
from pipecd_piped.health import PipedHealth
from pipecd_piped.metrics import Numbers, PipedMetrics
from pipecd_piped.plugins import Phase, Plugin, PluginLimits, PluginState
from pipecd_wire.model import deployment_pb2 as pb


def plugin_of(
    phase: Phase = Phase.READY, sentence: str = "serves STEP", *, restarts: int = 0
) -> Plugin:
    plugin = Plugin("script", PluginLimits(), lambda _: None)
    for _ in range(restarts + 1):
        plugin.become(Phase.STARTING, "starts")
    plugin.version = "1.2"
    plugin.state = PluginState(phase=phase, sentence=sentence)
    return plugin


def repository_of(
    reach: Reachability, reason: str = ""
) -> Callable[[], Mapping[str, RepositoryState]]:
    return lambda: {"web": RepositoryState.now(reach, reason)}


def health_of(**other: Any) -> PipedHealth:
    health = PipedHealth(
        plugins={"script": plugin_of()},
        repositories=lambda: {"example": RepositoryState.now(Reachability.REACHABLE)},
        connected=lambda: True,
        trouble=lambda: "",
        fault=lambda: "",
        holds_lease=lambda: True,
    )
    return replace(health, **other)


def ask(health: PipedHealth) -> dict[str, Any]:
    ready, body = health.readiness()
    answer: dict[str, Any] = json.loads(body)
    assert answer["ready"] is ready
    return answer


def test_it_is_ready_when_every_part_is() -> None:
    answer = ask(health_of())

    assert answer["ready"]
    assert answer["notReady"] == []
    assert {
        "name": "plugin script",
        "ready": True,
        "state": "ready",
        "sentence": "serves STEP",
    } in (answer["parts"])
    assert [part["name"] for part in answer["parts"]] == [
        "control plane",
        "plugin script",
        "repository example",
        "disk",
    ]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"connected": lambda: False}, "control plane: away, it has not answered yet; reports"),
        (
            {"connected": lambda: False, "trouble": lambda: "a:1 cannot be reached: refused"},
            "control plane: away, a:1 cannot be reached: refused; reports wait",
        ),
        ({"fault": lambda: "no space left"}, "disk: failing, no space left"),
        (
            {"plugins": {"odd": plugin_of(Phase.FAILED, "exited with code 7")}},
            "plugin odd: failed, exited with code 7",
        ),
        (
            {"repositories": repository_of(Reachability.UNREACHABLE, "no route")},
            "repository web: unreachable, no route",
        ),
        ({"repositories": repository_of(Reachability.OPENING)}, "repository web: opening"),
    ],
)
def test_a_part_that_is_not_ready_is_named(other: Any, sentence: str) -> None:
    answer = ask(health_of(**other))

    assert not answer["ready"]
    [named] = answer["notReady"]
    assert named.startswith(sentence)


def test_an_instance_that_waits_for_the_lease_is_ready() -> None:
    """Otherwise a rolling update would wait for it, and it for the update."""
    waits = repository_of(Reachability.OPENING)
    answer = ask(health_of(holds_lease=lambda: False, repositories=waits))

    assert answer["ready"]
    assert answer["lease"] == "with another instance; this one waits"


def metrics_of(health: PipedHealth, *deployments: pb.Deployment) -> PipedMetrics:
    return PipedMetrics(
        health=health,
        numbers=Numbers(
            running=lambda: 2, waiting=lambda: 3, reports=lambda: 4, deployments=lambda: deployments
        ),
        labels={"pipecd_component": "piped", "project": "default"},
    )


def read(metrics: PipedMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The series by name, as a scraper reads them; all carry the common labels."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(metrics.text()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert (labels.pop("pipecd_component"), labels.pop("project")) == ("piped", "default")
            found.setdefault(sample.name, []).append((labels, sample.value))
    return found


def test_the_parts_are_metrics() -> None:
    plugins = {'a"b\n': plugin_of(restarts=7), "c": plugin_of(Phase.FAILED)}
    series = read(
        metrics_of(health_of(plugins=plugins, connected=lambda: False, fault=lambda: "full"))
    )

    assert ({"plugin": 'a"b\n', "state": "ready"}, 1) in series["piped_plugin_state"]
    assert ({"plugin": "c", "state": "ready"}, 0) in series["piped_plugin_state"]
    assert ({"plugin": "c", "state": "failed"}, 1) in series["piped_plugin_state"]
    assert ({"plugin": 'a"b\n'}, 7) in series["piped_plugin_restarts_total"]
    assert ({"plugin": "c", "version": "1.2"}, 1) in series["piped_plugin_info"]
    assert series["piped_repository_reachable"] == [({"repository": "example"}, 1)]
    for name, value in {
        "piped_plugins_ready": 1,
        "piped_deployments_running": 2,
        "piped_deployments_waiting": 3,
        "piped_reports_waiting": 4,
        "piped_disk_fault": 1,
        "piped_controlplane_connected": 0,
        "piped_lease_held": 1,
    }.items():
        assert series[name] == [({}, value)]


def test_the_process_itself_is_measured() -> None:
    series = read(metrics_of(health_of()))

    assert series["process_resident_memory_bytes"][0][1] > 1_000_000
    assert "process_cpu_seconds_total" in series
    assert "process_open_fds" in series


def test_a_deployment_has_one_status() -> None:
    running = pb.Deployment(
        id="d1", application_id="a1", application_name="web", status=pb.DEPLOYMENT_RUNNING
    )
    unheard_of = pb.Deployment(id="d2", kind=77, status=pb.DEPLOYMENT_PENDING)  # type: ignore[arg-type]
    metrics = metrics_of(health_of(), running, unheard_of)
    before = statuses(metrics)
    running = pb.Deployment(id="d1", status=pb.DEPLOYMENT_SUCCESS)
    metrics.record_completed(running)

    assert before == {"d1": "DEPLOYMENT_RUNNING", "d2": "DEPLOYMENT_PENDING"}
    assert statuses(metrics)["d1"] == "DEPLOYMENT_SUCCESS"
    assert len(read(metrics)["deployment_status"]) == 14


def statuses(metrics: PipedMetrics) -> dict[str, str]:
    series = read(metrics)["deployment_status"]
    return {labels["deployment"]: labels["status"] for labels, value in series if value}
