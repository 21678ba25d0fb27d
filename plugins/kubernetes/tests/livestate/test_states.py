# SPDX-License-Identifier: Apache-2.0
"""Live states over real connections: what is read, announced, survived, and said to be missing."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from pipecd_plugin_kubernetes.client import Cluster, Connection
from pipecd_plugin_kubernetes.config import AppStateInformer, KubernetesTarget
from pipecd_plugin_kubernetes.livestate import LiveStates, LiveView
from pipecd_plugin_kubernetes.livestate.kind_watch import KindWatch
from pipecd_plugin_kubernetes.livestate.store import LiveStore

from pipecd_sdk import DeployTarget, Health, LiveSnapshot
from pipecd_test_support.live_cluster import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    QUICK,
    SECRET,
    THING,
    LiveApi,
    Watched,
    healthy_pod,
    make_object,
    running,
    shop,
)
from pipecd_test_support.scripted_api import Drop, Hang, Reply, refuse

FORBIDDEN = refuse(403, "Forbidden", "secrets is forbidden")


def target(name: str = "dev", **config: Any) -> DeployTarget:
    return DeployTarget(name=name, labels={}, config=KubernetesTarget(**config))


def seen(snapshot: LiveSnapshot) -> Mapping[str, Health]:
    return {each.name: each.health for each in snapshot.resources}


async def read(watched: Watched, application_id: str = "app") -> LiveSnapshot:
    return await watched.states.read(application_id, target())


async def test_what_runs_is_there_at_the_first_question(live: LiveApi, watched: Watched) -> None:
    live.add(*shop())

    assert set(seen(await read(watched))) == {"settings", "web", "web-1", "web-1-a"}
    assert set(seen(await read(watched, "other"))) == set()


async def test_a_kind_is_listed_and_watched_once_whoever_asks(
    live: LiveApi, watched: Watched
) -> None:
    live.add(*shop())
    await asyncio.gather(*(read(watched, f"app-{number}") for number in range(20)))
    await watched.states.read("app", target("the same cluster by another name"))

    await live.api.wait_for_requests("GET", live.path(POD), 2)
    asked = live.api.find("GET", live.path(POD))
    assert [each.query.get("watch", "") for each in asked] == ["", "true"]


async def test_a_change_is_announced_and_seen(live: LiveApi, watched: Watched) -> None:
    live.add(*shop())
    await read(watched)
    watched.announced.clear()

    waiting = {"reason": "CrashLoopBackOff", "message": "back-off"}
    crashing = {
        "phase": "Running",
        "containerStatuses": [{"name": "app", "state": {"waiting": waiting}}],
    }
    live.add(make_object(POD, "web-1-a", owner="web-1", status=crashing))
    await watched.wait_announced("app")

    assert seen(await read(watched))["web-1-a"] is Health.UNHEALTHY


async def test_what_was_deleted_is_announced_and_gone(live: LiveApi, watched: Watched) -> None:
    live.add(*shop())
    await read(watched)
    watched.announced.clear()

    live.remove("uid-web-1-a")
    await watched.wait_announced("app")

    assert "web-1-a" not in seen(await read(watched))


async def test_an_application_that_nobody_asked_for_is_not_announced(
    live: LiveApi, watched: Watched
) -> None:
    live.add(*shop(), make_object(DEPLOYMENT, "theirs", application="theirs"))
    await read(watched)
    live.add(make_object(DEPLOYMENT, "theirs", application="theirs", spec={"replicas": 2}))
    live.add(make_object(CONFIG_MAP, "settings", application="app", data={"a": "c"}))
    await watched.wait_announced("app")

    assert "theirs" not in watched.announced


async def test_after_410_the_kind_is_listed_again_and_what_was_missed_is_seen(
    live: LiveApi, watched: Watched
) -> None:
    live.add(*shop())
    await read(watched)
    await live.api.wait_for_requests("GET", live.path(POD), 2)
    watched.announced.clear()

    del live.objects["uid-web-1-a"]
    live.objects["uid-web-1-b"] = healthy_pod("web-1-b", owner="web-1")
    live.forget(POD)
    await watched.wait_announced("app")

    assert {"web-1-a", "web-1-b"} & set(seen(await read(watched))) == {"web-1-b"}


async def test_a_server_that_was_away_is_read_again(live: LiveApi, watched: Watched) -> None:
    live.add(*shop())
    await read(watched)
    await live.api.wait_for_requests("GET", live.path(POD), 2)
    watched.announced.clear()

    live.refusals[POD] = Drop(resets=True)
    live.add(healthy_pod("web-1-b", owner="web-1"))
    await live.api.wait_for_requests("GET", live.path(POD), 12)
    del live.refusals[POD]
    await watched.wait_announced("app")

    assert "web-1-b" in seen(await read(watched))


async def test_a_forbidden_kind_is_said_where_it_matters_and_the_rest_is_shown(
    live: LiveApi, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    live.add(*shop())
    live.refusals[SECRET] = FORBIDDEN
    snapshot = await read(watched)
    assert "secrets cannot be read" not in seen(snapshot)

    view = snapshot.data
    assert isinstance(view, LiveView)
    await watched.states.want(view, [("v1", "Secret"), ("apps/v1", "Deployment")])
    found = seen(await read(watched))

    assert found["secrets cannot be read"] is Health.UNKNOWN
    assert found["web"] is not None
    assert "may not" in view.find_problem("", "Secret") or "forbidden" in view.find_problem(
        "", "Secret"
    )
    assert view.find_problem("", "Pod") == ""
    assert [each.message for each in caplog.records].count("livestate.kind_unreadable") == 1


async def test_a_kind_that_may_be_listed_and_not_watched_is_listed_again_and_again(
    live: LiveApi, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    live.add(*shop())
    live.unwatched.add(POD)
    store = LiveStore()
    watch = KindWatch(
        cluster, POD, namespace="", store=store, on_change=lambda _: None, poll_seconds=0.001
    )
    task = asyncio.create_task(watch.run())
    await watch.settled.wait()
    live.objects["uid-web-1-b"] = healthy_pod("web-1-b", owner="web-1")
    await live.api.wait_for_requests("GET", live.path(POD), 6)
    task.cancel()
    await asyncio.wait([task])

    assert len(store) == 3
    assert watch.problem == ""
    assert [each.message for each in caplog.records].count("livestate.kind_unwatched") == 1


async def test_a_kind_of_a_manifest_is_watched_from_then_on(
    live: LiveApi, watched: Watched
) -> None:
    live.add(*shop(), make_object(THING, "thing", application="app"))
    snapshot = await read(watched)
    assert "thing" not in seen(snapshot)
    watched.announced.clear()

    await watched.states.want(snapshot.data, [("example.com/v1", "Thing")])

    assert "thing" in seen(await read(watched))
    assert watched.announced == ["app", "app"]  # its list, and the kind


async def test_a_kind_that_appears_later_is_watched_when_a_manifest_names_it(
    live: LiveApi, watched: Watched
) -> None:
    late = THING.__class__(
        group="late.io",
        version="v1",
        kind="Late",
        plural="lates",
        namespaced=True,
        verbs=THING.verbs,
    )
    live.add(*shop())
    snapshot = await read(watched)
    live.serve(late)
    live.add(make_object(late, "late", application="app"))

    await watched.states.want(snapshot.data, [("late.io/v1", "Late"), ("nowhere/v1", "Odd")])

    assert "late" in seen(await read(watched))


async def test_a_kind_whose_definition_goes_takes_its_objects_along(
    live: LiveApi, watched: Watched
) -> None:
    live.add(*shop(), make_object(THING, "thing", application="app"))
    snapshot = await read(watched)
    await watched.states.want(snapshot.data, [("example.com/v1", "Thing")])
    assert "thing" in seen(await read(watched))
    await live.api.wait_for_requests("GET", live.path(THING), 2)
    watched.announced.clear()

    live.refusals[THING] = refuse(404, "NotFound", "the server could not find it")
    live.forget(THING)
    await watched.wait_announced("app")

    assert "thing" not in seen(await read(watched))


async def test_a_cluster_that_does_not_answer_is_unknown_and_harms_no_other(
    live: LiveApi, cluster: Cluster
) -> None:
    live.add(*shop())
    nowhere = Connection(server="http://127.0.0.1:1", source="the test")

    async def connect(chosen: DeployTarget) -> Cluster:
        if chosen.name == "dev":
            return cluster
        return await Cluster.connect(nowhere, policy=QUICK)

    states = LiveStates(connect, first_list_seconds=10, first_pause_seconds=0.001)
    async with running(states) as watched:
        away, there = await asyncio.gather(
            watched.states.read("app", target("away", kube_config_path="/away")),
            watched.states.read("app", target()),
        )
        assert there.data.problem == ""
        assert "127.0.0.1:1" in away.data.problem

    assert seen(away) == {"away": Health.UNKNOWN}
    assert "web-1-a" in seen(there)


async def test_a_slow_first_list_is_said_and_not_taken_for_nothing(
    live: LiveApi, cluster: Cluster
) -> None:
    live.add(*shop())
    live.refusals[CONFIG_MAP] = Hang()

    async def connect(_chosen: DeployTarget) -> Cluster:
        return cluster

    async with running(LiveStates(connect, first_list_seconds=0.5)) as watched:
        snapshot = await watched.states.read("app", target())

        assert "not been listed" in snapshot.data.find_problem("", "ConfigMap")
        assert snapshot.data.find_problem("", "Pod") == ""
        assert "excluded" in snapshot.data.find_problem("example.com", "Thing")


async def test_without_a_running_watch_everything_is_listed_at_each_question(
    live: LiveApi, cluster: Cluster
) -> None:
    live.add(*shop())

    async def connect(_chosen: DeployTarget) -> Cluster:
        return cluster

    states = LiveStates(connect)
    assert "web-1-a" in seen(await states.read("app", target()))
    live.remove("uid-web-1-a")
    assert "web-1-a" not in seen(await states.read("app", target()))


async def test_a_hostile_object_in_a_list_hides_no_other(live: LiveApi, watched: Watched) -> None:
    live.add(*shop())
    odd = make_object(POD, "odd", application="app")
    odd["status"] = ["not", "an", "object"]
    nameless = make_object(POD, "nameless", application="app")
    nameless["metadata"]["annotations"] = "text"
    live.add(odd, nameless)

    found = seen(await read(watched))

    assert found["odd"] is Health.UNKNOWN
    assert found["web-1-a"] is Health.HEALTHY
    assert "nameless" not in found


async def test_a_namespace_limits_what_is_asked_for(live: LiveApi, watched: Watched) -> None:
    live.api.answer("GET", "/api/v1/namespaces/shop/pods", Reply(body={"items": []}))

    config = KubernetesTarget(app_state_informer=AppStateInformer(namespace="shop"))
    await watched.states.read("app", DeployTarget(name="dev", labels={}, config=config))

    assert live.api.find("GET", live.path(POD)) == []
    assert live.api.find("GET", "/api/v1/namespaces") == []
    assert live.api.find("GET", "/api/v1/namespaces/shop/pods") != []
