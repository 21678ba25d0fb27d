# SPDX-License-Identifier: Apache-2.0
"""What is shown of an object: all that can be read, and a note for what cannot."""

from typing import Any, cast

import pytest
from pipecd_plugin_kubernetes.client import (
    ApiResource,
    Cluster,
    ForbiddenError,
    InvalidError,
    Object,
    ObjectRef,
)
from pipecd_plugin_kubernetes.details import MOST_CONTAINERS, GitDifference, open_object
from pipecd_plugin_kubernetes.livestate import LiveObject

from pipecd_sdk import Details, Health, ResourceGoneError, TargetError

POD = ApiResource(
    group="", version="v1", kind="Pod", plural="pods", namespaced=True, verbs=frozenset()
)
SECRET = ApiResource(
    group="", version="v1", kind="Secret", plural="secrets", namespaced=True, verbs=frozenset()
)


class CannedCluster:
    """Answers as a cluster does that has one object."""

    def __init__(self, body: Object | None) -> None:
        self.body = body
        self.events: list[Object] | Exception = []
        self.logs: dict[tuple[str, bool], str | Exception] = {}
        self.read: list[tuple[str, bool, int]] = []

    async def get(self, _ref: ObjectRef) -> Object | None:
        return self.body

    async def list_events(self, ref: ObjectRef, *, uid: str = "") -> list[Object]:
        assert (ref.name, uid) == ("web", "u1")
        if isinstance(self.events, Exception):
            raise self.events
        return self.events

    async def read_log(
        self, namespace: str, pod: str, *, container: str, tail_lines: int, previous: bool = False
    ) -> str:
        assert (namespace, pod) == ("shop", "web")
        self.read.append((container, previous, tail_lines))
        text = self.logs.get((container, previous), "")
        if isinstance(text, Exception):
            raise text
        return text

    async def open(
        self,
        resource: ApiResource = POD,
        *,
        digest: bytes = b"",
        difference: GitDifference | Exception | None = None,
        **asked: Any,
    ) -> Details:
        record = LiveObject(
            uid="u1",
            resource=resource,
            namespace="shop",
            name="web",
            health=Health.HEALTHY,
            digest=digest,
        )

        async def compare(_record: LiveObject) -> GitDifference:
            if isinstance(difference, Exception):
                raise difference
            assert difference is not None, "nothing to compare with"
            return difference

        wanted = {"log_lines": 10, **asked}
        return await open_object(cast(Cluster, self), record, compare, **wanted)


def pod(*containers: str, restarts: int = 0, **parts: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": each} for each in containers]},
        "status": {
            "containerStatuses": [{"name": each, "restartCount": restarts} for each in containers]
        },
        **parts,
    }


async def test_the_previous_run_is_read_where_there_was_one() -> None:
    cluster = CannedCluster(pod("web", "side", restarts=1))
    cluster.body["status"]["containerStatuses"][1]["restartCount"] = 0  # type: ignore[index]
    cluster.logs = {("web", False): "now\n", ("web", True): "before\n", ("side", False): "s\n"}

    shown = await cluster.open(log_lines=7)

    assert [(each.container, each.previous, each.text) for each in shown.logs] == [
        ("web", False, "now\n"),
        ("web", True, "before\n"),
        ("side", False, "s\n"),
    ]
    assert {lines for _, _, lines in cluster.read} == {7}
    assert "kind: Pod" in shown.manifest


async def test_one_container_is_read_when_it_is_named() -> None:
    cluster = CannedCluster(pod("web", "side", restarts=1))

    shown = await cluster.open(container="side")
    strange = await cluster.open(container="no-such")

    assert {name for name, _, _ in cluster.read} == {"side"}
    assert len(shown.logs) == 2
    assert list(strange.logs) == []
    assert "it has no container 'no-such'; it has web, side" in strange.notes


async def test_what_cannot_be_read_is_noted_and_hides_nothing() -> None:
    cluster = CannedCluster(pod("web", "side"))
    cluster.events = ForbiddenError("may not list events")
    cluster.logs = {("web", False): InvalidError("waiting to start"), ("side", False): "s\n"}

    shown = await cluster.open(digest=b"d", difference=TargetError("no template"))

    assert [each.text for each in shown.logs] == ["s\n"]
    assert shown.difference is None
    told = "\n".join(shown.notes)
    for word in ("may not list events", "the log of web", "waiting to start", "no template"):
        assert word in told


async def test_a_pod_of_a_thousand_containers_is_not_read_a_thousand_times() -> None:
    cluster = CannedCluster(pod(*(f"c{number}" for number in range(1000)), restarts=1))

    shown = await cluster.open()

    assert len(cluster.read) == 2 * MOST_CONTAINERS
    assert any("992 more containers" in note for note in shown.notes)


async def test_events_of_both_forms_are_shown_and_malformed_ones_left_out() -> None:
    cluster = CannedCluster(pod("web"))
    cluster.events = [
        {"type": "Normal", "reason": "Pulled", "message": "m", "count": 3},
        {
            "type": "Warning",
            "note": "n",
            "eventTime": "2026-01-02T03:04:05.123456Z",
            "series": {"count": 4},
        },
        {"message": ["not", "a", "text"]},
        {"message": "when?", "lastTimestamp": "soon"},
    ]

    shown = await cluster.open()

    first, second, last = shown.events
    assert (first.reason, first.message, first.count, first.at) == ("Pulled", "m", 3, None)
    assert (second.kind, second.message, second.count) == ("Warning", "n", 4)
    assert second.at is not None
    assert second.at.isoformat() == "2026-01-02T03:04:05.123456+00:00"
    assert (last.message, last.at) == ("when?", None)


async def test_the_difference_of_what_was_applied_is_shown() -> None:
    found = GitDifference(text="-a\n+b\n", notes=["said so"])

    shown = await CannedCluster(pod("web")).open(digest=b"d", difference=found)

    assert shown.difference == "-a\n+b\n"
    assert "said so" in shown.notes


async def test_what_somebody_else_made_has_no_difference() -> None:
    shown = await CannedCluster(pod("web")).open()

    assert shown.difference is None
    assert any("not in git" in note for note in shown.notes)


@pytest.mark.parametrize("body", [None, {"metadata": {"name": "web", "uid": "another"}}, {}])
async def test_another_object_of_the_same_name_is_not_shown(body: Object | None) -> None:
    """It may belong to anybody."""
    with pytest.raises(ResourceGoneError):
        await CannedCluster(body).open()


@pytest.mark.parametrize(
    "parts",
    [
        {"spec": {"containers": "many"}},
        {"spec": []},
        {"status": {"containerStatuses": [1]}},
        {"spec": {"containers": [{"name": ["a"]}]}},
        {"spec": {"containers": [{}]}, "status": None},
    ],
)
async def test_a_pod_of_a_wrong_shape_is_shown_without_lines(parts: dict[str, Any]) -> None:
    shown = await CannedCluster({**pod("web"), **parts}).open()

    assert list(shown.logs) == []
    assert "name: web" in shown.manifest


async def test_a_secret_shows_no_value_anywhere() -> None:
    needle = "b3BlbiBzZXNhbWU="
    body = {
        "kind": "Pod",  # a body may call itself anything
        "metadata": {"name": "web", "uid": "u1", "annotations": {"copy": needle}},
        "data": {"password": needle},
    }

    shown = await CannedCluster(body).open(SECRET, digest=b"d", difference=GitDifference(text=""))

    assert needle not in repr(shown)
    assert "password" in shown.manifest
