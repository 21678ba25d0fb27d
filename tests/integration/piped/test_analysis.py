# SPDX-License-Identifier: Apache-2.0
"""The plugin `analysis` under a real piped: a verdict stops a pipeline, and survives a death."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.web_server import Answer, Question, WebServer
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

TEMPLATE = """
apiVersion: pipecd.dev/v1beta1
kind: AnalysisTemplate
spec:
  metrics:
    errors:
      provider: prometheus
      query: "{{ .AppCustomArgs.kind }}"
      interval: 250ms
      expected: {max: 0.1}
"""


class Metrics(WebServer):
    """Answers like Prometheus, with a rate of errors that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = 0.0
        self.give("/api/v1/query_range", self.tell)

    def tell(self, question: Question) -> Answer:
        assert question.query["query"] == ["errors"]
        data = {"resultType": "scalar", "result": [0, str(self.rate)]}
        return Answer(body=json.dumps({"status": "success", "data": data}).encode())


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with Metrics() as server:
        yield server


def start(site: PipedSite, metrics: WebServer) -> None:
    site.commit({".pipe/analysis.yaml": TEMPLATE})
    provider = {"name": "prometheus", "type": "PROMETHEUS", "config": {"address": metrics.url}}
    analysis = {"name": "analysis", "config": {"analysisProviders": [provider]}}
    site.configure(analysis, "scriptrun")
    site.start()


def commit(site: PipedSite, name: str, duration: str, **more: Any) -> str:
    template = {"template": {"name": "errors"}}
    stages = [
        {
            "name": "SCRIPT_RUN",
            "with": {"run": "true", "onRollback": f"echo back >> {site.record}"},
        },
        {"name": "ANALYSIS", "with": {"duration": duration, "metrics": [template], **more}},
        {"name": "SCRIPT_RUN", "with": {"run": f"echo on >> {site.record}"}},
    ]
    arguments = {"analysis": {"appCustomArgs": {"kind": "errors"}}}
    return site.commit_application(name, stages, plugins=arguments)


def find_stage(deployment: pb.Deployment) -> pb.PipelineStage:
    return next(each for each in deployment.stages if each.name == "ANALYSIS")


async def wait_asked(metrics: WebServer, times: int) -> None:
    async with asyncio.timeout(60):
        while len(metrics.asked) < times:  # noqa: ASYNC110 - other processes ask
            await asyncio.sleep(0.02)


async def test_a_good_verdict_goes_on_and_a_bad_one_goes_back(
    site: PipedSite, client: SiteClient, metrics: Metrics
) -> None:
    start(site, metrics)
    good = await client.completed(await client.deploy("web", commit(site, "web", "500ms")))
    after_good = site.records()
    metrics.rate = 0.25
    bad = await client.completed(await client.deploy("shop", commit(site, "shop", "1h")))

    assert good.status == pb.DEPLOYMENT_SUCCESS, good.status_reason
    assert after_good == ["on"]
    kept = find_stage(good).metadata
    record = json.loads(kept["analysis/metrics-0"])
    assert record["name"] == "errors"
    assert [each["values"] for each in record["evaluations"]] == [[0]] * 2
    assert kept["pipecd/stage-display-metadata"] == "2 evaluations, no failures"
    assert bad.status == pb.DEPLOYMENT_FAILURE
    stage = find_stage(bad)
    assert "metrics-0 (errors) failed once, 0 allowed; the last: 0.25 is out of range" in (
        stage.status_reason
    )
    assert site.records() == ["on", "back"], "nothing went on, and what was done was undone"


async def test_a_person_skips_it_and_the_pipeline_goes_on_at_once(
    site: PipedSite, client: SiteClient, metrics: Metrics
) -> None:
    start(site, metrics)
    deployment_id = await client.deploy("web", commit(site, "web", "1h"))
    running = await client.stage_running(deployment_id, 1)
    await wait_asked(metrics, 1)

    begun = time.monotonic()
    request = own.SkipStageRequest(deployment_id=deployment_id, stage_id=running.id)
    await call(client.deployments.SkipStage, request)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert find_stage(ended).status == pb.STAGE_SKIPPED
    assert "Skipped by " in find_stage(ended).metadata["pipecd/stage-display-metadata"]
    assert site.records() == ["on"]
    assert time.monotonic() - begun < 30


def has_evaluated(times: int) -> Callable[[pb.Deployment], bool]:
    def holds(deployment: pb.Deployment) -> bool:
        found = [each for each in deployment.stages if each.name == "ANALYSIS"]
        kept = found[0].metadata.get("analysis/metrics-0") if found else None
        return kept is not None and json.loads(kept)["evaluated"] >= times

    return holds


async def test_a_killed_plugin_goes_on_with_its_time_and_its_numbers(
    site: PipedSite, client: SiteClient, metrics: Metrics
) -> None:
    start(site, metrics)
    deployment_id = await client.deploy("web", commit(site, "web", "4s"))
    seen = await client.until(deployment_id, has_evaluated(3))
    before = find_stage(seen)
    os.kill(site.find_plugin_pid("analysis"), signal.SIGKILL)
    ended = await client.completed(deployment_id)

    after = find_stage(ended)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert after.metadata["startTime"] == before.metadata["startTime"]
    record = json.loads(after.metadata["analysis/metrics-0"])
    assert (record["looks"], record["done"], record["evaluated"]) == (16, 16, 16)
    assert "HTTP Request" not in site.log_text(), "an address may hold what nobody else should see"
    restarts = [line for line in await client.log(ended, after) if "Analysing for" in line]
    assert len(restarts) == 2, "it was called a second time"
