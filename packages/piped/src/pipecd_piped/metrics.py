# SPDX-License-Identifier: Apache-2.0
"""The metrics of piped, for Prometheus and for the control plane.

Only the last completed deployments are stored here; everything else is read for each scrape.
Metrics that other implementations have too use the same names and labels.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pipecd_piped.git.state import Reachability
from pipecd_piped.health import PipedHealth
from pipecd_piped.plugins.state import Phase
from pipecd_wire.model.common_pb2 import ApplicationKind
from pipecd_wire.model.deployment_pb2 import Deployment, DeploymentStatus

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

ENDED: Final = 20
"""The number of completed deployments whose status is still exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Functions that return the current values of metrics."""

    running: Callable[[], int]
    """Deployments that run."""
    waiting: Callable[[], int]
    """Deployments that are queued."""
    reports: Callable[[], int]
    """Reports that wait to be delivered."""
    deployments: Callable[[], Iterable[Deployment]]
    """Deployments that are not completed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipedMetrics(Collector):
    """The metrics of one piped."""

    health: PipedHealth
    numbers: Numbers
    labels: Mapping[str, str]
    """Labels of every series."""
    ended: deque[Deployment] = field(default_factory=lambda: deque(maxlen=ENDED))

    def record_completed(self, deployment: Deployment) -> None:
        """Keep a completed deployment, so that its last status is exported for a while."""
        self.ended.append(deployment)

    def text(self) -> str:
        """Returns all metrics in the Prometheus text format."""
        registry = CollectorRegistry()
        registry.register(LabelledCollector(self, self.labels))
        process = ProcessCollector(registry=CollectorRegistry())
        registry.register(LabelledCollector(process, self.labels))
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of piped, without those of the process."""
        yield self._statuses()
        yield from self._plugins()
        numbers, health = self.numbers, self.health
        yield _gauge("piped_deployments_running", "Deployments that run.", numbers.running())
        yield _gauge(
            "piped_deployments_waiting", "Deployments that wait for another.", numbers.waiting()
        )
        yield _gauge(
            "piped_reports_waiting",
            "Reports that the control plane has not taken yet.",
            numbers.reports(),
        )
        yield _gauge("piped_disk_fault", "1 while the disk takes no reports.", bool(health.fault()))
        yield _gauge(
            "piped_controlplane_connected",
            "1 while there is a connection to the control plane.",
            health.connected(),
        )
        yield _gauge("piped_lease_held", "1 while this instance may work.", health.holds_lease())
        repositories = GaugeMetricFamily(
            "piped_repository_reachable", "1 while it can be reached.", labels=["repository"]
        )
        for name, repository in sorted(health.repositories().items()):
            repositories.add_metric([name], repository.reach is Reachability.REACHABLE)
        yield repositories

    def _plugins(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "piped_plugin_state", "1 for the state a plugin is in.", labels=["plugin", "state"]
        )
        restarts = CounterMetricFamily(
            "piped_plugin_restarts", "How often a plugin was started again.", labels=["plugin"]
        )
        info = GaugeMetricFamily(
            "piped_plugin_info", "The version that runs.", labels=["plugin", "version"]
        )
        ready = 0
        for name, plugin in sorted(self.health.plugins.items()):
            for phase in Phase:
                states.add_metric([name, str(phase)], plugin.state.phase is phase)
            restarts.add_metric([name], plugin.restarts)
            info.add_metric([name, plugin.version], 1)
            ready += plugin.state.phase is Phase.READY
        yield from (states, restarts, info)
        yield _gauge("piped_plugins_ready", "Plugins that are ready.", ready)

    def _statuses(self) -> Metric:
        family = GaugeMetricFamily(
            "deployment_status",
            "1 for the status a deployment has.",
            labels=[
                "deployment",
                "application_id",
                "application_name",
                "application_kind",
                "platform_provider",
                "status",
            ],
        )
        known = {deployment.id: deployment for deployment in self.numbers.deployments()}
        known.update({deployment.id: deployment for deployment in self.ended})
        for deployment in known.values():
            about = [
                deployment.id,
                deployment.application_id,
                deployment.application_name,
                _kind(deployment),
                deployment.platform_provider,
            ]
            for status in DeploymentStatus.values():
                name = DeploymentStatus.Name(status)
                family.add_metric([*about, name], deployment.status == status)
        return family


@dataclass(frozen=True, slots=True, eq=False)
class LabelledCollector(Collector):
    """Adds labels to every series of another collector."""

    inner: Collector
    labels: Mapping[str, str]

    def collect(self) -> Iterator[Metric]:
        for family in self.inner.collect():
            family.samples = [
                sample._replace(labels={**self.labels, **sample.labels})
                for sample in family.samples
            ]
            yield family


def _kind(deployment: Deployment) -> str:
    known = deployment.kind in ApplicationKind.values()
    return ApplicationKind.Name(deployment.kind) if known else str(deployment.kind)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)
