# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory, with what deploying needs of one: apply with owners, lists, watches, faults.

It keeps the promises of `ApplyContract` (in `apply_contract`), which a real cluster keeps too.
Nothing runs in it: no controller makes pods or sets a status unless the test does.
"""

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipecd_plugin_kubernetes.client import (
    AlreadyExistsError,
    ApiResource,
    ChangeType,
    Cluster,
    ConflictError,
    Discovery,
    FieldConflict,
    GoneError,
    Listing,
    NotFoundError,
    Object,
    ObjectRef,
    PatchType,
    UnknownKindError,
    WatchEvent,
)

from pipecd_test_support.fake_ownership import apply_fields, find_conflicts, record_update

VERBS = frozenset({"create", "delete", "get", "list", "patch", "update", "watch"})


def make_resource(
    group: str, kind: str, *, plural: str = "", version: str = "v1", namespaced: bool = True
) -> ApiResource:
    """Returns a kind that has everything that can be done to it."""
    name = plural or f"{kind.lower()}s"
    return ApiResource(
        group=group, version=version, kind=kind, plural=name, namespaced=namespaced, verbs=VERBS
    )


USUAL = (
    *(make_resource("", kind) for kind in ("Pod", "Service", "ConfigMap", "Secret")),
    make_resource("", "Namespace", namespaced=False),
    *(
        make_resource("apps", kind)
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
    ),
    make_resource("batch", "Job"),
    make_resource("autoscaling", "HorizontalPodAutoscaler", version="v2"),
    make_resource("networking.k8s.io", "Ingress", plural="ingresses"),
    make_resource("rbac.authorization.k8s.io", "ClusterRole", namespaced=False),
    make_resource("apiextensions.k8s.io", "CustomResourceDefinition", namespaced=False),
)


@dataclass(slots=True)
class FakeState:
    """Everything that the server keeps."""

    objects: dict[ObjectRef, Object] = field(default_factory=dict)
    changes: list[tuple[ChangeType, ObjectRef, Object, int]] = field(default_factory=list)
    forgotten: int = 0
    """Watches cannot begin at this version or before."""
    version: int = 100
    uids: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class FakeCluster(Cluster):
    """One API server in memory."""

    def __init__(self, *resources: ApiResource, namespace: str = "default") -> None:
        # Nothing of the real one is used: it would need a transport.
        self.namespace = namespace
        self.server = "memory"
        self.resources: list[ApiResource] = [*USUAL, *resources]
        self.failed_groups: dict[str, str] = {}
        self.state = FakeState()
        self.calls: list[tuple[str, str]] = []
        """Every call: what, and on what."""
        self.on_call: Callable[[str, str], None] = lambda what, name: None
        """Called before each call; what it raises is the answer."""
        self.logs: dict[tuple[str, str, bool], str] = {}
        self.establishes_definitions = True
        self._changed = asyncio.Condition()

    async def close(self) -> None:
        """Does nothing."""

    async def discover(self) -> Discovery:
        return Discovery(resources=tuple(self.resources), failed_groups=dict(self.failed_groups))

    async def refresh_discovery(self) -> Discovery:
        return await self.discover()

    async def find_resource(
        self, api_version: str, kind: str, *, within_seconds: float = 0
    ) -> ApiResource:
        found = (await self.discover()).find(api_version, kind)
        if found is None:
            raise UnknownKindError(
                f"the cluster does not know {kind} ({api_version})",
                api_version=api_version,
                kind=kind,
            )
        return found

    async def ref_of(self, body: Object) -> ObjectRef:
        resource = await self.find_resource(body["apiVersion"], body["kind"])
        metadata = body["metadata"]
        namespace = (metadata.get("namespace") or self.namespace) if resource.namespaced else ""
        return ObjectRef(resource, namespace, metadata["name"])

    async def get(self, ref: ObjectRef) -> Object | None:
        await self._begin("get", str(ref))
        found = self.state.objects.get(ref)
        return copy.deepcopy(found) if found is not None else None

    async def list(  # type: ignore[override]  # what deploying needs of it
        self, resource: ApiResource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Listing[Object]:
        await self._begin("list", str(resource))
        items = [
            copy.deepcopy(body)
            for ref, body in self.state.objects.items()
            if _is_selected(ref, body, resource, namespace, labels, fields)
        ]
        return Listing(items=items, resource_version=str(self.state.version))

    async def watch(  # type: ignore[override]  # what deploying needs of it
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str,
    ) -> AsyncIterator[WatchEvent[Object]]:
        await self._begin("watch", str(resource))
        position = int(resource_version)
        while True:
            if position < self.state.forgotten:
                raise GoneError("the version is too old", http_status=410)
            for change, ref, body, version in list(self.state.changes):
                if version <= position:
                    continue
                position = version
                if _is_selected(ref, body, resource, namespace, labels, fields):
                    yield WatchEvent(change, copy.deepcopy(body), str(version))
            async with self._changed:
                if self.state.version <= position and position >= self.state.forgotten:
                    await self._changed.wait()

    async def apply(
        self, body: Object, *, manager: str = "piped", force: bool = False, dry_run: bool = False
    ) -> Object:
        ref = await self.ref_of(body)
        await self._begin("apply", str(ref))
        await self._check_namespace(ref)
        live = self.state.objects.get(ref)
        wanted = body["metadata"].get("resourceVersion")
        if live is None:
            return await self._add(ref, apply_fields({}, body, manager))
        if wanted and wanted != live["metadata"]["resourceVersion"]:
            raise _make_conflict(f"{ref} has been modified")
        conflicts = find_conflicts(live, body, manager)
        if conflicts and not force:
            error = _make_conflict(f"{len(conflicts)} conflicts")
            error.conflicts = tuple(
                FieldConflict(manager=who, field=path) for who, path in conflicts
            )
            raise error
        merged = apply_fields(live, body, manager)
        if dry_run:
            return merged
        return await self._store(ref, live, merged)

    async def create(
        self, body: Object, *, manager: str = "piped", dry_run: bool = False
    ) -> Object:
        ref = await self.ref_of(body)
        await self._begin("create", str(ref))
        await self._check_namespace(ref)
        if ref in self.state.objects:
            raise AlreadyExistsError(f"{ref} exists", http_status=409)
        return await self._add(ref, record_update({}, body, manager))

    async def replace(
        self, body: Object, *, manager: str = "piped", dry_run: bool = False
    ) -> Object:
        ref = await self.ref_of(body)
        await self._begin("replace", str(ref))
        live = self._require(ref)
        wanted = body["metadata"].get("resourceVersion")
        if wanted and wanted != live["metadata"]["resourceVersion"]:
            raise _make_conflict(f"{ref} has been modified")
        return await self._store(ref, live, record_update(live, body, manager))

    async def patch(
        self,
        ref: ObjectRef,
        patch: Object | Sequence[Object],
        *,
        content_type: PatchType,
        manager: str = "piped",
        dry_run: bool = False,
        subresource: str = "",
    ) -> Object:
        await self._begin("patch", str(ref))
        live = self._require(ref)
        changed = copy.deepcopy(live)
        assert content_type is PatchType.JSON
        assert isinstance(patch, list | tuple)
        for each in patch:
            if each["path"] == "/metadata/resourceVersion":
                if each["value"] != live["metadata"]["resourceVersion"]:
                    raise _make_conflict(f"{ref} has been modified")
            else:
                assert each["path"] == "/metadata/managedFields"
                changed["metadata"]["managedFields"] = each["value"]
        return await self._store(ref, live, changed)

    async def delete(
        self,
        ref: ObjectRef,
        *,
        uid: str = "",
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> bool:
        await self._begin("delete", str(ref))
        live = self.state.objects.get(ref)
        if live is None or (uid and live["metadata"]["uid"] != uid):
            return False
        if live["metadata"].get("finalizers"):
            held = copy.deepcopy(live)
            held["metadata"].setdefault("deletionTimestamp", "2024-01-01T00:00:00Z")
            await self._store(ref, live, held)
        else:
            await self.remove(ref)
        return True

    async def read_log(
        self, namespace: str, pod: str, *, container: str, tail_lines: int, previous: bool = False
    ) -> str:
        await self._begin("log", pod)
        try:
            text = self.logs[(pod, container, previous)]
        except KeyError:
            raise NotFoundError("there is no such log", http_status=404) from None
        return "\n".join(text.splitlines()[-tail_lines:])

    # What others do to the cluster, for tests.

    async def write_as(
        self,
        manager: str,
        body: Object,
        change: Callable[[Object], None] = lambda body: None,
        *,
        subresource: str = "",
    ) -> Object:
        """Lets somebody else create or change the object of a manifest, as an update."""
        ref = await self.ref_of(body)
        live = self.state.objects.get(ref)
        wanted = copy.deepcopy(live or body)
        change(wanted)
        written = record_update(live or {}, wanted, manager, subresource=subresource)
        if live is None:
            return await self._add(ref, written)
        return await self._store(ref, live, written)

    async def set_status(self, body: Object, status: Object) -> None:
        """Lets a controller write the status of an object."""
        ref = await self.ref_of(body)
        live = self._require(ref)
        await self._store(ref, live, {**copy.deepcopy(live), "status": status})

    async def strip_owners(self, body: Object) -> None:
        """Forgets who owns the fields of an object."""
        ref = await self.ref_of(body)
        live = self._require(ref)
        bare = copy.deepcopy(live)
        del bare["metadata"]["managedFields"]
        await self._store(ref, live, bare)

    async def remove(self, ref: ObjectRef) -> None:
        """Takes an object away at once, finalizers or not."""
        body = self.state.objects.pop(ref)
        await self._note(ChangeType.DELETED, ref, body)

    async def forget_changes(self) -> None:
        """Makes every watch that runs too old."""
        self.state.version += 1
        self.state.forgotten = self.state.version
        self.state.changes.clear()
        async with self._changed:
            self._changed.notify_all()

    def find(self, kind: str, name: str) -> Object:
        """Returns the live object itself."""
        for ref, body in self.state.objects.items():
            if (ref.resource.kind, ref.name) == (kind, name):
                return body
        raise AssertionError(f"there is no {kind} {name}")

    def has(self, kind: str, name: str) -> bool:
        """Tells whether an object is there."""
        return any((each.resource.kind, each.name) == (kind, name) for each in self.state.objects)

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Waits for something that comes with a call or a change."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(is_true)

    def list_calls(self, what: str) -> Sequence[str]:
        """Returns what was called this way, in order."""
        return [name for call, name in self.calls if call == what]

    async def _begin(self, what: str, name: str) -> None:
        await asyncio.sleep(0)
        self.calls.append((what, name))
        async with self._changed:
            self._changed.notify_all()
        self.on_call(what, name)

    def _require(self, ref: ObjectRef) -> Object:
        live = self.state.objects.get(ref)
        if live is None:
            raise NotFoundError(f"{ref} is not there", http_status=404)
        return live

    async def _check_namespace(self, ref: ObjectRef) -> None:
        if not ref.namespace or ref.namespace == self.namespace:
            return
        resource = await self.find_resource("v1", "Namespace")
        if ObjectRef(resource, "", ref.namespace) not in self.state.objects:
            raise NotFoundError(
                f"cannot apply {ref}",
                http_status=404,
                message=f'namespaces "{ref.namespace}" not found',
            )

    async def _add(self, ref: ObjectRef, body: Object) -> Object:
        metadata = body.setdefault("metadata", {})
        metadata["uid"] = f"uid-{next(self.state.uids)}"
        metadata["generation"] = 1
        if ref.namespace:
            metadata["namespace"] = ref.namespace
        if ref.resource.kind == "CustomResourceDefinition":
            self._define(body)
        _set_defaults(ref, body)
        self._stamp(body)
        self.state.objects[ref] = body
        await self._note(ChangeType.ADDED, ref, body)
        return copy.deepcopy(body)

    async def _store(self, ref: ObjectRef, live: Object, body: Object) -> Object:
        _set_defaults(ref, body)
        for key in ("uid", "generation", "namespace", "resourceVersion"):
            if key in live["metadata"]:
                body["metadata"][key] = live["metadata"][key]
        if body == live:
            return copy.deepcopy(live)
        if body.get("spec") != live.get("spec"):
            body["metadata"]["generation"] += 1
        self._stamp(body)
        if body["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
            self.state.objects[ref] = body
            await self.remove(ref)
            return copy.deepcopy(body)
        self.state.objects[ref] = body
        await self._note(ChangeType.MODIFIED, ref, body)
        return copy.deepcopy(body)

    def _stamp(self, body: Object) -> None:
        body["metadata"]["resourceVersion"] = str(self.state.version + 1)

    async def _note(self, change: ChangeType, ref: ObjectRef, body: Object) -> None:
        self.state.version += 1
        self.state.changes.append((change, ref, copy.deepcopy(body), self.state.version))
        async with self._changed:
            self._changed.notify_all()

    def _define(self, body: Object) -> None:
        if not self.establishes_definitions:
            return
        body["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        spec = body["spec"]
        self.resources += [
            make_resource(
                spec["group"],
                spec["names"]["kind"],
                plural=spec["names"]["plural"],
                version=version["name"],
                namespaced=spec["scope"] == "Namespaced",
            )
            for version in spec["versions"]
        ]


def _make_conflict(message: str) -> ConflictError:
    return ConflictError(message, http_status=409, message=message)


def _set_defaults(ref: ObjectRef, body: Object) -> None:
    if ref.resource.kind in {"Deployment", "StatefulSet", "ReplicaSet"}:
        spec = body.setdefault("spec", {})
        if spec.get("replicas") is None:
            spec["replicas"] = 1


def _is_selected(
    ref: ObjectRef, body: Object, resource: ApiResource, namespace: str, labels: str, fields: str
) -> bool:
    if ref.resource != resource or (namespace and ref.namespace != namespace):
        return False
    if fields and fields != f"metadata.name={ref.name}":
        return False
    has: dict[str, Any] = body["metadata"].get("labels") or {}
    wanted = [part.split("=", 1) for part in labels.split(",") if part]
    return all(has.get(key) == value for key, value in wanted)
