# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, and by whom it may be asked."""

import contextlib
import re

import httpx2
import pytest
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.parser import text_string_to_metric_families

from pipecd_controlplane.usecases.piped_metrics import LARGEST_PROJECT
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.served_settings import PlaneWith
from pipecd_test_support.strict_exposition import read_strictly
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


async def test_calls_are_counted_under_upstreams_names(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
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


async def test_metrics_of_pipeds_are_joined_each_name_once(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
    async with plane_with(admin_port=0) as plane:
        for name in ("one", "two"):
            agent = await plane.agent(name=name)
            stats = PIPED.format(name=name).encode()
            await call(agent.service.ReportStat, piped.ReportStatRequest(piped_stats=stats))

        text = (await client.get(f"http://{plane.running.admin_address}/metrics")).text

    assert text.count("# TYPE deployment_status") == 1
    assert sum(name == "deployment_status" for name, _ in samples(text)) == 2


async def test_who_shows_no_key_sees_nothing(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    for headers in ({}, {"authorization": "Bearer wrong.key"}, {"authorization": "Basic x"}):
        answer = await client.get(f"http://{plane.address}/metrics", headers=headers)
        assert answer.status_code == 401


async def test_counting_can_be_turned_off(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
    async with plane_with(metrics=False, admin_port=0) as plane:
        answer = await client.get(f"http://{plane.running.admin_address}/metrics")
        assert (answer.status_code, answer.text) == (200, "")
        assert (await client.get(f"http://{plane.running.admin_address}/healthz")).text == "ok"


HOSTILE = b"""\
# HELP deployment_status Read this, neighbours.
# TYPE deployment_status histogram
deployment_status_bucket{project="other",piped="theirs",le="1"} 7
deployment_status_sum{project="other"} 7
deployment_status_count{project="other"} 7
# HELP process_start_time_seconds Second head.
# TYPE process_start_time_seconds counter
process_start_time_seconds{project="other"} 1
# HELP process_open_fds Second head.
# TYPE process_open_fds gauge
process_open_fds{project="other",pipecd_component="server"} 666
# HELP insight_application_total Second head.
# TYPE insight_application_total gauge
insight_application_total{project="other",pipecd_component="server",app_kind="KUBERNETES"} 666
# HELP leak A secret of the first project.
leak{text="secret"} 1
"""


async def report(agent: AgentClient, stats: bytes) -> None:
    await call(agent.service.ReportStat, piped.ReportStatRequest(piped_stats=stats))


async def test_a_piped_speaks_for_itself_alone(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
    async with plane_with(admin_port=0) as plane:
        other = await plane.other_project("other")
        culprit, victim = await plane.agent(name="culprit"), await plane.agent(other, name="victim")
        await report(culprit, HOSTILE)
        await report(victim, PIPED.format(name="victim").encode())
        theirs = await page(client, plane, other.key)
        ours = await page(client, plane, plane.admin.key)
        everything = (await client.get(f"http://{plane.running.admin_address}/metrics")).text

    assert "neighbours" not in theirs
    assert "leak" not in theirs
    assert 666.0 not in read_strictly(theirs).values()
    assert [labels for name, labels in read_strictly(theirs) if name == "deployment_status"] == [
        (
            ("pipecd_component", "piped"),
            ("piped", victim.id),
            ("project", "other"),
        )
    ]
    for text in (ours, everything):
        for name, labels in read_strictly(text):
            told = dict(labels)
            if told.get("pipecd_component") == "piped":
                assert (
                    told["project"]
                    == {
                        culprit.id: "default",
                        victim.id: "other",
                    }[told["piped"]]
                )
            else:
                assert read_strictly(text)[name, labels] != 666
        assert text.count("# TYPE process_open_fds ") == 1


@pytest.mark.parametrize(
    ("stats", "reason"),
    [
        (b" " * (9 * 1024 * 1024), "9437184 bytes"),
        (b"".join(b"a%d 1\n" % number for number in range(5000)), "5000 metrics"),
        (b"\xff", "not UTF-8"),
        (b"nonsense", "no metrics"),
        (b'a{__name__="b"} 1\n', "cannot be used"),
    ],
)
async def test_a_report_that_cannot_be_shown_is_refused_and_a_sign_of_life_all_the_same(
    plane_with: PlaneWith, client: httpx2.AsyncClient, stats: bytes, reason: str
) -> None:
    async with plane_with(admin_port=0) as plane:
        culprit, other = await plane.agent(name="culprit"), await plane.agent(name="other")
        with pytest.raises(CallError, match=reason) as refused:
            await report(culprit, stats)
        await report(other, PIPED.format(name="other").encode())
        text = (await client.get(f"http://{plane.running.admin_address}/metrics")).text

    assert refused.value.status == "INVALID_ARGUMENT"
    found = read_strictly(text)
    online = ("pipecd_component", "server"), ("project", "default")
    assert found["pipecd_pipeds_online", online] == 2
    assert [dict(labels)["piped"] for name, labels in found if name == "deployment_status"] == [
        other.id
    ]


async def test_the_page_of_a_server_with_real_pipeds_is_for_the_strictest_reader(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
    own = CollectorRegistry()
    ProcessCollector(registry=own)
    PlatformCollector(registry=own)
    GCCollector(registry=own)
    async with plane_with(admin_port=0) as plane:
        for name in ("one", "two"):
            await report(await plane.agent(name=name), generate_latest(own))
        await client.request("MADE-UP", f"http://{plane.address}/version")
        text = (await client.get(f"http://{plane.running.admin_address}/metrics")).text

    found = read_strictly(text)
    assert sum(name == "process_start_time_seconds" for name, _ in found) == 3
    assert "MADE-UP" not in text


async def test_many_pipeds_with_large_reports_do_not_make_a_page_without_end(
    plane_with: PlaneWith, client: httpx2.AsyncClient
) -> None:
    lines = b"".join(b'a{b="%0200d"} 1\n' % number for number in range(2300))
    count = LARGEST_PROJECT // len(lines) + 2
    async with plane_with(admin_port=0) as plane:
        agents = [await plane.agent(name=f"agent-{number}") for number in range(count)]
        for agent in agents:
            await plane.stores.piped_stats.put(
                "default", agent.id, piped.ReportStatRequest(piped_stats=lines)
            )
        await report(agents[0], PIPED.format(name="small").encode())
        text = (await client.get(f"http://{plane.running.admin_address}/metrics")).text

    shown = set(re.findall('piped="([^"]+)"', text))
    assert agents[0].id in shown
    assert len(shown) < count


async def page(client: httpx2.AsyncClient, plane: ServedControlPlane, key: str) -> str:
    answer = await client.get(
        f"http://{plane.address}/metrics", headers={"authorization": f"Bearer {key}"}
    )
    assert answer.status_code == 200
    return str(answer.text)
