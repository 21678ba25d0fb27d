# SPDX-License-Identifier: Apache-2.0
"""Waiting until workloads are ready: when it ends, what it says meanwhile, and why it failed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pipecd_plugin_kubernetes.apply import Applied, NotReadyError, wait_ready
from pipecd_plugin_kubernetes.apply.pods import find_troubles, format_selector
from pipecd_plugin_kubernetes.apply.readiness import judge
from pipecd_plugin_kubernetes.apply.wait_start import WaitStart
from pipecd_plugin_kubernetes.client import Object, UnavailableError

from pipecd_sdk import PipedError, Severity, StageFailedError
from pipecd_sdk.testing import InMemoryMetadata
from pipecd_test_support.apply_contract import apply, config_map, deployment
from pipecd_test_support.fake_cluster import FakeCluster
from pipecd_test_support.recording_log import RecordingLog

SPACE = "default"
LONG, SHORT = timedelta(seconds=30), timedelta(seconds=0.05)
READY = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
MISSED = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Progressing",
            "status": "False",
            "reason": "ProgressDeadlineExceeded",
            "message": 'ReplicaSet "web-1" has timed out progressing.',
        }
    ],
}
WEB = deployment(SPACE, "web")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@contextmanager
def waiting(
    cluster: FakeCluster, applied: Applied, log: RecordingLog
) -> Iterator["asyncio.Task[None]"]:
    task = asyncio.ensure_future(wait_ready(cluster, applied, log=log, within=LONG))
    yield task
    task.cancel()


def pod(name: str, *, status: Object, labels: dict[str, str] | None = None) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": {"app": "web", **(labels or {})}},
        "spec": {},
        "status": status,
    }


def container(name: str = "app", **fields: Any) -> Object:
    return {"name": name, "ready": False, "restartCount": 0, "state": {}, **fields}


CRASHED = container(
    restartCount=3,
    state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
    lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
)


async def test_it_ends_when_the_last_workload_is_ready(cluster: FakeCluster) -> None:
    api = deployment(SPACE, "api")
    applied, _ = await apply(cluster, WEB, api, config_map(SPACE, "settings", {}))
    log = RecordingLog()
    with waiting(cluster, applied, log) as task:
        await cluster.wait_until(lambda: bool(cluster.list_calls("watch")))
        await cluster.set_status(WEB.body, {**READY, "availableReplicas": 1})
        await cluster.set_status(WEB.body, READY)
        await log.wait_logged("apps:Deployment:default:web is ready")
        assert not task.done()
        await cluster.set_status(api.body, READY)
        await task

    assert log.lines[-1] == "all 2 workloads are ready"
    assert log.severities[-1] is Severity.SUCCESS


async def test_without_workloads_there_is_nothing_to_wait_for(cluster: FakeCluster) -> None:
    applied, _ = await apply(cluster, config_map(SPACE, "settings", {}))
    cluster.calls.clear()

    await wait_ready(cluster, applied, log=RecordingLog(), within=SHORT)

    assert cluster.calls == []


async def test_a_watch_that_is_too_old_begins_anew(cluster: FakeCluster) -> None:
    applied, _ = await apply(cluster, WEB)
    with waiting(cluster, applied, RecordingLog()) as task:
        await cluster.wait_until(lambda: bool(cluster.list_calls("watch")))
        await cluster.forget_changes()
        await cluster.wait_until(lambda: len(cluster.list_calls("watch")) > 1)
        await cluster.set_status(WEB.body, READY)
        await task


class TestAfterAKill:
    """The time that a rollout has begins when the first process begins to wait."""

    BEGUN = datetime(2026, 1, 1, tzinfo=UTC)

    async def make_start(self, seconds: float) -> WaitStart:
        metadata = InMemoryMetadata()
        before = WaitStart(metadata=metadata, key="since", now=lambda: self.BEGUN)
        await before.keep(self.BEGUN)
        return WaitStart(
            metadata=metadata, key="since", now=lambda: self.BEGUN + timedelta(seconds=seconds)
        )

    async def test_what_is_left_of_the_time_is_what_is_waited(self, cluster: FakeCluster) -> None:
        applied, _ = await apply(cluster, WEB)
        start = await self.make_start(3600 - 0.05)

        with pytest.raises(NotReadyError, match="is not ready after 3600 seconds"):
            await wait_ready(
                cluster, applied, log=RecordingLog(), within=timedelta(hours=1), start=start
            )

    async def test_when_it_is_over_what_is_ready_by_then_is_ready(
        self, cluster: FakeCluster
    ) -> None:
        """Pods go on while nobody waits for them."""
        applied, _ = await apply(cluster, WEB)
        await cluster.set_status(WEB.body, READY)
        log = RecordingLog()

        await wait_ready(cluster, applied, log=log, within=LONG, start=await self.make_start(3600))

        assert log.lines[-1] == "all 1 workloads are ready"

    async def test_the_first_start_stays(self) -> None:
        start = await self.make_start(7)
        assert await start.read_waited_seconds() == 7
        await start.keep(self.BEGUN + timedelta(seconds=5))
        assert await start.read_waited_seconds() == 7

    async def test_a_piped_that_is_away_does_not_end_the_wait(self) -> None:
        class AwayMetadata(InMemoryMetadata):
            is_away = True

            async def get(self, key: str) -> str | None:
                if self.is_away:
                    raise PipedError("piped does not answer")
                return await super().get(key)

        metadata = AwayMetadata()
        start = WaitStart(metadata=metadata, key="since")
        await start.keep(self.BEGUN)
        metadata.is_away = False
        assert "since" not in metadata
        await start.keep(self.BEGUN)
        assert "since" in metadata

    async def test_a_clock_that_was_set_back_does_not_make_more_of_it(self) -> None:
        assert await (await self.make_start(-10)).read_waited_seconds() == 0

    async def test_without_a_note_nothing_was_waited(self) -> None:
        start = WaitStart(metadata=InMemoryMetadata(), key="since")
        assert await start.read_waited_seconds() == 0

    async def test_a_note_that_is_no_time_is_a_sentence(self) -> None:
        metadata = InMemoryMetadata()
        await metadata.put("since", "yesterday")
        with pytest.raises(StageFailedError, match="'since' is no time"):
            await WaitStart(metadata=metadata, key="since").read_waited_seconds()


async def test_a_missed_deadline_fails_with_the_pod_its_reason_and_its_last_lines(
    cluster: FakeCluster,
) -> None:
    applied, _ = await apply(cluster, WEB)
    running = {"conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.write_as("kubelet", pod("web-old", status=running))
    broken = {"phase": "Running", "containerStatuses": [CRASHED]}
    await cluster.write_as("kubelet", pod("web-new", status=broken))
    cluster.logs[("web-new", "app", True)] = "begun\n\x1b]0;title\x07panic: no database\n"
    await cluster.set_status(WEB.body, MISSED)
    log = RecordingLog()

    with pytest.raises(NotReadyError, match="timed out progressing"):
        await wait_ready(cluster, applied, log=log, within=LONG)

    assert "apps:Deployment:default:web is not ready" in log.text
    assert "pod web-new, container app: CrashLoopBackOff: exit code 137: back-off 40s" in log.text
    assert "restarted 3 times" in log.text
    assert "panic: no database" in log.text
    assert "\x1b]" not in log.text
    assert "web-old" not in log.text


async def test_the_stages_own_limit_says_how_long_it_was_waited(cluster: FakeCluster) -> None:
    applied, _ = await apply(cluster, WEB)
    await cluster.set_status(WEB.body, {**READY, "availableReplicas": 1})

    with pytest.raises(NotReadyError, match="web is not ready after 0 seconds: 1 of 2"):
        await wait_ready(cluster, applied, log=RecordingLog(), within=SHORT)


async def test_a_workload_that_somebody_deletes_fails_at_once(cluster: FakeCluster) -> None:
    applied, _ = await apply(cluster, WEB)
    with waiting(cluster, applied, RecordingLog()) as task:
        await cluster.wait_until(lambda: bool(cluster.list_calls("watch")))
        await cluster.remove(await cluster.ref_of(WEB.body))
        with pytest.raises(NotReadyError, match="deleted by somebody"):
            await task


async def test_a_cluster_that_is_lost_fails_with_its_sentence(cluster: FakeCluster) -> None:
    applied, _ = await apply(cluster, WEB)

    def refuse(what: str, name: str) -> None:
        if what == "watch":
            raise UnavailableError("cannot watch deployments: no connection", http_status=0)

    cluster.on_call = refuse

    with pytest.raises(UnavailableError, match="no connection"):
        await wait_ready(cluster, applied, log=RecordingLog(), within=LONG)


async def test_the_missed_deadline_of_the_rollout_before_is_not_taken_for_this_one(
    cluster: FakeCluster,
) -> None:
    """The server shows it until the rollout of the earlier commit makes progress."""
    await apply(cluster, WEB)
    await cluster.set_status(WEB.body, MISSED)
    back = deployment(SPACE, "web", env={"BACK": "1"})
    applied, _ = await apply(cluster, back)
    await cluster.set_status(WEB.body, {**MISSED, "observedGeneration": 2})
    log = RecordingLog()
    with waiting(cluster, applied, log) as task:
        await log.wait_logged("it made no progress within its deadline")
        await cluster.wait_until(lambda: bool(cluster.list_calls("watch")))
        assert not task.done()
        await cluster.set_status(WEB.body, {**READY, "observedGeneration": 2})
        await task


async def test_it_can_be_cancelled_and_leaves_no_watch_behind(cluster: FakeCluster) -> None:
    applied, _ = await apply(cluster, WEB)
    task = asyncio.ensure_future(wait_ready(cluster, applied, log=RecordingLog(), within=LONG))
    await cluster.wait_until(lambda: bool(cluster.list_calls("watch")))

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "is_ready"),
    [
        ("Deployment", {"paused": True, "replicas": 2}, {}, True),
        ("Deployment", {"replicas": 2}, READY, True),
        ("Deployment", {"replicas": 2}, {**READY, "observedGeneration": 0}, False),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}, "replicas": 2}, {}, False),
        (
            "StatefulSet",
            {"updateStrategy": {"type": "OnDelete"}, "replicas": 2},
            {"observedGeneration": 1, "readyReplicas": 2},
            True,
        ),
        (
            "DaemonSet",
            {"updateStrategy": {"type": "OnDelete"}},
            {"observedGeneration": 1, "desiredNumberScheduled": 3, "numberAvailable": 3},
            True,
        ),
        ("ReplicaSet", {"replicas": "two"}, {"observedGeneration": 1}, False),
    ],
)
def test_what_counts_as_ready(kind: str, spec: Object, status: Object, is_ready: bool) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "generation": 1},
        "spec": spec,
        "status": status,
    }

    assert judge(body)[:2] == (is_ready, False)


def test_a_pod_that_failed_will_not_become_ready() -> None:
    body = pod("once", status={"phase": "Failed"})

    assert judge(body)[:2] == (False, True)


def test_troubles_are_found_and_what_only_starts_is_none() -> None:
    starting = container(state={"waiting": {"reason": "ContainerCreating"}})
    missing = container(state={"waiting": {"reason": "ImagePullBackOff", "message": "no\x07such"}})
    init = container("init", state={"terminated": {"exitCode": 2, "reason": "Error"}})
    unscheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    found = find_troubles(
        [
            pod("a", status={"containerStatuses": [starting]}),
            pod("b", status={"containerStatuses": [missing], "initContainerStatuses": [init]}),
            pod("c", status={"conditions": [unscheduled]}),
            pod("d", status={"containerStatuses": "hostile", "conditions": [1]}),
            pod("e", status={"phase": "Failed", "reason": "Evicted", "message": "disk"}),
        ]
    )

    texts = [str(each) for each in found]
    assert texts[0] == "pod b, container init: Error: exit code 2"
    assert texts[1].startswith("pod b, container app: ImagePullBackOff: no")
    assert "\x07" not in texts[1]
    assert texts[2:] == [
        "pod c: Unschedulable: 0/3 nodes are available",
        "pod e: Evicted: disk",
    ]


def test_a_selector_is_written_as_the_api_takes_it() -> None:
    workload = {
        "spec": {
            "selector": {
                "matchLabels": {"b": "2", "a": "1"},
                "matchExpressions": [
                    {"key": "c", "operator": "In", "values": ["x", "y"]},
                    {"key": "d", "operator": "NotIn", "values": ["z"]},
                    {"key": "e", "operator": "Exists"},
                    {"key": "f", "operator": "DoesNotExist"},
                    "hostile",
                ],
            }
        }
    }

    assert format_selector(workload) == "a=1,b=2,c in (x,y),d notin (z),e,!f"
    assert format_selector({"spec": {"selector": "text"}}) == ""
