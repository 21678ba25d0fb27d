# SPDX-License-Identifier: Apache-2.0
"""What is counted, for Prometheus: upstream's names where it has them, ours with `pipecd_`."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from pipecd_controlplane.auth import calls
from pipecd_controlplane.usecases.shared_state import Measurement
from pipecd_wire.rpc import Admit, Metadata, Method

COMPONENT: Final = "server"
HTTP_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
)
HTTP_BUCKETS: Final = tuple(float(5**power) for power in range(7))
RPC_BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)

CREATE_DEPLOYMENT: Final = frozenset(
    f"/grpc.service.pipedservice.PipedService/{name}"
    for name in ("CreateDeployment", "CreateDeploymentChain")
)


class Metrics:
    """All counters of one server."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        rpc = ("pipecd_component", "grpc_service", "grpc_method", "grpc_type")
        self._started = Counter("grpc_server_started", "RPCs begun.", rpc, registry=registry)
        self._received = Counter(
            "grpc_server_msg_received", "Messages received.", rpc, registry=registry
        )
        self._sent = Counter("grpc_server_msg_sent", "Messages sent.", rpc, registry=registry)
        self._handled = Counter(
            "grpc_server_handled", "RPCs ended.", (*rpc, "grpc_code"), registry=registry
        )
        self._rpc_seconds = Histogram(
            "pipecd_rpc_seconds", "How long RPCs took.", rpc, buckets=RPC_BUCKETS, registry=registry
        )
        http = ("pipecd_component", "code", "method", "path")
        self._requests = Counter("http_requests", "HTTP requests.", http, registry=registry)
        self._request_time = Histogram(
            "http_request_duration_milliseconds",
            "How long HTTP requests took.",
            http,
            buckets=HTTP_BUCKETS,
            registry=registry,
        )
        self._deployments = Counter(
            "grpcapi_create_deployment",
            "Deployments created.",
            ("pipecd_component", "project"),
            registry=registry,
        )
        self._hooks = Counter(
            "pipecd_hooks",
            "Deliveries of git hosts, by what became of them.",
            ("pipecd_component", "project", "outcome"),
            registry=registry,
        )
        self._applications = Gauge(
            "insight_application_total",
            "Applications, enabled and disabled.",
            ("pipecd_component", "project", "app_kind"),
            registry=registry,
        )
        self._pipeds = Gauge(
            "pipecd_pipeds_online",
            "Pipeds that were heard in the last two minutes.",
            ("pipecd_component", "project"),
            registry=registry,
        )
        self._gauges: dict[str, Gauge] = {}

    def count_admission(self, admit: Admit) -> Admit:
        """Returns an `Admit` that also counts all calls, those that are refused included."""

        async def admit_and_count(method: Method, metadata: Metadata) -> object:
            labels = (COMPONENT, method.service, method.name, _type(method))
            self._started.labels(*labels).inc()
            self._received.labels(*labels).inc()
            return await admit(method, metadata)

        return admit_and_count

    def observe(self, method: Method, status: str, seconds: float) -> None:
        labels = (COMPONENT, method.service, method.name, _type(method))
        self._handled.labels(*labels, _code(status)).inc()
        self._rpc_seconds.labels(*labels).observe(seconds)
        if status == "OK":
            self._sent.labels(*labels).inc()
            call = calls.current()
            if method.path in CREATE_DEPLOYMENT and call is not None:
                self._deployments.labels(COMPONENT, call.project_id).inc()

    def count_http(self, method: str, path: str, status: int, seconds: float) -> None:
        # A client can make up methods, and each would be a label for ever.
        labels = (COMPONENT, str(status), method if method in HTTP_METHODS else "other", path)
        self._requests.labels(*labels).inc()
        self._request_time.labels(*labels).observe(seconds * 1000)

    def count_hook(self, project_id: str, outcome: str) -> None:
        """Counts a delivery. The project is empty for one without a good signature."""
        self._hooks.labels(COMPONENT, project_id, outcome).inc()

    def set_applications(self, counts: Iterable[tuple[str, str, int]]) -> None:
        """Sets the numbers of applications by project and kind."""
        self._applications.clear()
        for project, kind, count in counts:
            self._applications.labels(COMPONENT, project, kind).set(count)

    def set_pipeds(self, counts: Iterable[tuple[str, int]]) -> None:
        self._pipeds.clear()
        for project, count in counts:
            self._pipeds.labels(COMPONENT, project).set(count)

    def set_gauges(self, measured: Iterable[Measurement]) -> None:
        """Sets what parts of the server measure of themselves."""
        for each in measured:
            gauge = self._gauges.get(each.name)
            if gauge is None:
                gauge = self._gauges[each.name] = Gauge(
                    each.name, each.description, ("pipecd_component",), registry=self._registry
                )
            gauge.labels(COMPONENT).set(each.value)

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _type(method: Method) -> str:
    return "server_stream" if method.streams else "unary"


def _code(status: str) -> str:
    """Returns a code as Go writes it: `NOT_FOUND` is `NotFound`; `OK` stays."""
    return status if status == "OK" else "".join(part.title() for part in status.split("_"))
