# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, and by whom it may be asked."""

import contextlib
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from controlplane.http.metrics import of_project
from controlplane.http.scrape import joined
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.rpc import CallError, call

PIPED = (
    "# HELP deployment_status The current status.\n# TYPE deployment_status gauge\n"
    'deployment_status{{project="default",piped="{name}"}} 1\n'
)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_calls_are_counted_under_upstreams_names(plane_with: Any, client: Any) -> None:
    async with plane_with() as plane:
        await call(plane.admin.api.ListApplications, api.ListApplicationsRequest())
        with contextlib.suppress(CallError):
            await call(
                plane.admin.api.GetApplication, api.GetApplicationRequest(application_id="x")
            )
        agent = await plane.agent()
        await plane.deployment(agent, await plane.application(agent))
        await client.get(f"http://{plane.address}/version")

        answer = await client.get(
            f"http://{plane.address}/metrics",
            headers={"authorization": f"Bearer {plane.admin.key}"},
        )

    found = samples(answer.text)
    service = "grpc.service.apiservice.APIService"
    common = (("grpc_service", service), ("grpc_type", "unary"), ("pipecd_component", "server"))

    def rpc(name: str, method: str, *more: tuple[str, str]) -> float:
        return found[name, tuple(sorted((*common, ("grpc_method", method), *more)))]

    assert rpc("grpc_server_started_total", "ListApplications") == 1
    assert rpc("grpc_server_handled_total", "ListApplications", ("grpc_code", "OK")) == 1
    assert rpc("grpc_server_handled_total", "GetApplication", ("grpc_code", "NotFound")) == 1
    assert rpc("grpc_server_msg_sent_total", "ListApplications") == 1
    component = ("pipecd_component", "server")
    created = ("grpcapi_create_deployment_total", (component, ("project", "default")))
    assert found[created] == 1
    page = (("code", "200"), ("method", "GET"), ("path", "/version"), component)
    assert found["http_requests_total", page] == 1
    kinds = [labels for name, labels in found if name == "insight_application_total"]
    assert kinds


async def test_metrics_of_pipeds_are_joined_each_name_once(plane_with: Any, client: Any) -> None:
    async with plane_with(admin_port=0) as plane:
        for name in ("one", "two"):
            agent = await plane.agent(name=name)
            stats = PIPED.format(name=name).encode()
            await call(agent.service.ReportStat, piped.ReportStatRequest(piped_stats=stats))

        text = (await client.get(f"http://{plane.running.admin_address}/metrics")).text

    assert text.count("# TYPE deployment_status") == 1
    assert sum(name == "deployment_status" for name, _ in samples(text)) == 2


async def test_who_shows_no_key_sees_nothing(plane: Any, client: Any) -> None:
    for headers in ({}, {"authorization": "Bearer wrong.key"}, {"authorization": "Basic x"}):
        answer = await client.get(f"http://{plane.address}/metrics", headers=headers)
        assert answer.status_code == 401


async def test_counting_can_be_turned_off(plane_with: Any, client: Any) -> None:
    async with plane_with(metrics=False, admin_port=0) as plane:
        answer = await client.get(f"http://{plane.running.admin_address}/metrics")
        assert (answer.status_code, answer.text) == (200, "")
        assert (await client.get(f"http://{plane.running.admin_address}/healthz")).text == "ok"


def test_lines_of_other_projects_are_left_out() -> None:
    text = b'# TYPE a gauge\na{project="x"} 1\na{project="y"} 2\nb{p="1",project="y"} 3\nc 4\n'

    assert (
        of_project(text, "y") == b'# TYPE a gauge\na{project="y"} 2\nb{p="1",project="y"} 3\nc 4\n'
    )


def test_pages_that_have_nothing_join_to_nothing() -> None:
    assert joined([]) == ""
    assert joined(["", "# only a remark\n"]) == ""
