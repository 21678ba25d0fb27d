# SPDX-License-Identifier: Apache-2.0
"""Objects as a Kubernetes cluster has them, and an API server that serves and watches them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pipecd_plugin_kubernetes.client import ApiResource, RetryPolicy
from pipecd_plugin_kubernetes.livestate import LiveStates
from pipecd_plugin_kubernetes.livestate.records import LiveObject, make_record

from pipecd_sdk import DeployTarget, WatchContext
from pipecd_test_support.scripted_api import (
    AnyReply,
    Chunks,
    Reply,
    ScriptedApi,
    SeenRequest,
    refuse,
)

QUICK = RetryPolicy(
    most_attempts=3, total_seconds=5, first_pause_seconds=0.001, longest_pause_seconds=0.002
)

VERBS = frozenset({"get", "list", "watch", "patch", "delete"})


def resource(group: str, kind: str, *, namespaced: bool = True, version: str = "v1") -> ApiResource:
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    return ApiResource(
        group=group, version=version, kind=kind, plural=plural, namespaced=namespaced, verbs=VERBS
    )


DEPLOYMENT = resource("apps", "Deployment")
REPLICA_SET = resource("apps", "ReplicaSet")
POD = resource("", "Pod")
CONFIG_MAP = resource("", "ConfigMap")
SECRET = resource("", "Secret")
NAMESPACE = resource("", "Namespace", namespaced=False)
THING = resource("example.com", "Thing")
ALL = (DEPLOYMENT, REPLICA_SET, POD, CONFIG_MAP, SECRET, NAMESPACE, THING)


def marks(application: str) -> dict[str, str]:
    return {"pipecd.dev/application": application, "pipecd.dev/managed-by": "piped"}


def make_object(
    kind: ApiResource,
    name: str,
    *,
    application: str = "",
    owner: str = "",
    namespace: str = "shop",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    version: str = "1",
    **parts: Any,
) -> dict[str, Any]:
    """Returns an object; its uid is `uid-` and its name."""
    marked = marks(application) if application else {}
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": version,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": {**marked, **(annotations or {})},
        "labels": {**marked, **(labels or {})},
        "managedFields": [{"manager": "piped"}],
    }
    if kind.namespaced:
        metadata["namespace"] = namespace
    if owner:
        metadata["ownerReferences"] = [{"uid": f"uid-{owner}", "controller": True}]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


def record(kind: ApiResource, name: str, **more: Any) -> LiveObject:
    made = make_record(make_object(kind, name, **more), kind)
    assert made is not None
    return made


def healthy_pod(name: str, *, owner: str, **more: Any) -> dict[str, Any]:
    return make_object(POD, name, owner=owner, status={"phase": "Running"}, **more)


def shop() -> list[dict[str, Any]]:
    """A Deployment with its ReplicaSet and Pod, a ConfigMap, and a Pod of somebody else."""
    return [
        make_object(DEPLOYMENT, "web", application="app"),
        make_object(REPLICA_SET, "web-1", owner="web"),
        healthy_pod("web-1-a", owner="web-1"),
        make_object(CONFIG_MAP, "settings", application="app", data={"a": "b"}),
        make_object(CONFIG_MAP, "unmarked", data={"a": "b"}),
        healthy_pod("stranger", owner="nobody"),
    ]


class LiveApi:
    """Serves lists and watches of objects over a scripted API; a test changes them."""

    def __init__(self, api: ScriptedApi, kinds: Iterable[ApiResource] = ALL) -> None:
        self.api = api
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self._events: dict[ApiResource, list[tuple[int, bytes]]] = {}
        self._streams: dict[ApiResource, list[asyncio.Event]] = {}
        self.refusals: dict[ApiResource, AnyReply] = {}
        """What lists and watches of a kind answer instead."""
        self.unwatched: set[ApiResource] = set()
        """Kinds that may be listed and not watched."""
        self.kinds: list[ApiResource] = []
        self.serve(*kinds)

    def serve(self, *kinds: ApiResource) -> None:
        """Serves more kinds."""
        self.kinds += kinds
        self.api.answer("GET", "/api", Reply(body=self._discovery(core=True)))
        self.api.answer("GET", "/apis", Reply(body=self._discovery(core=False)))
        for kind in kinds:
            prefix = f"/apis/{kind.group}" if kind.group else "/api"
            self.api.answer("GET", f"{prefix}/{kind.version}/{kind.plural}", self._handler(kind))

    def path(self, kind: ApiResource) -> str:
        prefix = f"/apis/{kind.group}" if kind.group else "/api"
        return f"{prefix}/{kind.version}/{kind.plural}"

    def add(self, *bodies: dict[str, Any]) -> None:
        """Adds or changes objects; open watches end with the change, as streams may."""
        for body in bodies:
            uid = body["metadata"]["uid"]
            self._note("MODIFIED" if uid in self.objects else "ADDED", body)
            self.objects[uid] = body

    def remove(self, uid: str) -> None:
        self._note("DELETED", self.objects.pop(uid))

    def forget(self, kind: ApiResource) -> None:
        """Ends open watches and answers 410 to every watch from before now."""
        self.version += 1
        self._events[kind] = [(self.version, b"")]
        self._end_streams(kind)

    def _note(self, change: str, body: dict[str, Any]) -> None:
        self.version += 1
        kind = next(
            each
            for each in self.kinds
            if (each.api_version, each.kind) == (body["apiVersion"], body["kind"])
        )
        body["metadata"]["resourceVersion"] = str(self.version)
        line = json.dumps({"type": change, "object": body}).encode() + b"\n"
        self._events.setdefault(kind, []).append((self.version, line))
        self._end_streams(kind)

    def _end_streams(self, kind: ApiResource) -> None:
        for stream in self._streams.pop(kind, ()):
            stream.set()

    def _handler(self, kind: ApiResource) -> Any:
        def handle(request: SeenRequest) -> AnyReply:
            if kind in self.refusals:
                return self.refusals[kind]
            is_watch = request.query.get("watch") == "true"
            if is_watch and kind in self.unwatched:
                return refuse(403, "Forbidden", "you may not watch it")
            if is_watch:
                return self._watch(kind, int(request.query["resourceVersion"]))
            items = [
                each
                for each in self.objects.values()
                if (each["apiVersion"], each["kind"]) == (kind.api_version, kind.kind)
            ]
            return Reply(
                body={
                    "kind": f"{kind.kind}List",
                    "metadata": {"resourceVersion": str(self.version)},
                    "items": [
                        {k: v for k, v in each.items() if k not in {"apiVersion", "kind"}}
                        for each in items
                    ],
                }
            )

        return handle

    def _watch(self, kind: ApiResource, since: int) -> AnyReply:
        events = [each for each in self._events.get(kind, ()) if each[0] > since]
        if any(line == b"" for _, line in events):
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            return Chunks([json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"])
        if events:
            return Chunks([line for _, line in events])
        ends = asyncio.Event()
        self._streams.setdefault(kind, []).append(ends)
        return Chunks([], ends=ends)

    def _discovery(self, *, core: bool) -> dict[str, Any]:
        groups: dict[str, list[ApiResource]] = {}
        for kind in self.kinds:
            if (kind.group == "") is core:
                groups.setdefault(kind.group, []).append(kind)
        return {
            "kind": "APIGroupDiscoveryList",
            "items": [
                {
                    "metadata": {"name": group},
                    "versions": [{"version": "v1", "resources": [_to_entry(k) for k in kinds]}],
                }
                for group, kinds in groups.items()
            ],
        }


def _to_entry(kind: ApiResource) -> dict[str, Any]:
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "verbs": sorted(kind.verbs),
    }


class Watched:
    """Live states of one server, and what they announced."""

    def __init__(self, states: LiveStates) -> None:
        self.states = states
        self.announced: list[str] = []
        self.changed = asyncio.Event()

    def announce(self, application_id: str) -> None:
        self.announced.append(application_id)
        self.changed.set()

    async def wait_announced(self, application_id: str) -> None:
        """Waits for the next announcement of an application, and forgets all so far."""
        async with asyncio.timeout(20):
            while application_id not in self.announced:
                self.changed.clear()
                await self.changed.wait()
        self.announced.clear()

    async def run(self, targets: tuple[DeployTarget, ...] = ()) -> None:
        await self.states.watch(WatchContext(targets=targets, announce=self.announce))


@asynccontextmanager
async def running(states: LiveStates) -> AsyncIterator[Watched]:
    """Runs the watches of live states while the block runs."""
    watched = Watched(states)
    task = asyncio.create_task(watched.run())
    await asyncio.sleep(0)  # until it watches
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled(), task.exception()
