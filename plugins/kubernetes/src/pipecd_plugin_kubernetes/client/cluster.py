# SPDX-License-Identifier: Apache-2.0
"""One API server: what can be asked of it and done to it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final, Self, overload

from pipecd_plugin_kubernetes.client.caller import Caller, RetryNotice, RetryPolicy, tell_once
from pipecd_plugin_kubernetes.client.connection import Connection
from pipecd_plugin_kubernetes.client.creation import send_creation
from pipecd_plugin_kubernetes.client.decoding import decode_object, encode_body
from pipecd_plugin_kubernetes.client.deletion import send_deletion
from pipecd_plugin_kubernetes.client.discovery import Discoverer
from pipecd_plugin_kubernetes.client.errors import ConflictError, NotFoundError
from pipecd_plugin_kubernetes.client.events import find_event_time, select_events
from pipecd_plugin_kubernetes.client.listing import list_all
from pipecd_plugin_kubernetes.client.logs import read_tail
from pipecd_plugin_kubernetes.client.paths import (
    check_segment,
    find_collection,
    find_object,
    read_identity,
)
from pipecd_plugin_kubernetes.client.requests import JSON, Request
from pipecd_plugin_kubernetes.client.resources import (
    ApiResource,
    Discovery,
    Listing,
    Object,
    ObjectRef,
    PatchType,
    T,
    U,
    WatchEvent,
    describe_object,
)
from pipecd_plugin_kubernetes.client.watching import watch_changes

APPLY_PATCH: Final = "application/apply-patch+yaml"
"""JSON is YAML: bodies are sent as JSON."""
NO_PATH: Final = "could not find the requested resource"
"""What a server says about a path that it does not serve, and about no object."""
DRY_RUN: Final = ("dryRun", "All")


class Cluster:
    """One API server: kept connections, bounded concurrency, retries by class of failure.

    Every method raises a ClusterError, and everything can be cancelled.
    """

    def __init__(
        self, caller: Caller, *, discoverer: Discoverer, server: str, namespace: str
    ) -> None:
        """For `connect`, and for tests with a transport of their own."""
        self._caller = caller
        self._discoverer = discoverer
        self.server = server
        """Its address, for messages."""
        self.namespace = namespace
        """Where an object goes whose manifest names no namespace."""

    @classmethod
    async def connect(
        cls, connection: Connection, *, policy: RetryPolicy | None = None
    ) -> "Cluster":
        """Reads certificates and credentials; the server is not asked anything yet.

        Raises ConnectionConfigError or CredentialsError.
        """
        # The HTTP library costs as much as all else of a plugin: only who connects pays for it.
        module = await asyncio.to_thread(import_module, "pipecd_plugin_kubernetes.client.transport")
        transport = module.HttpTransport(connection)
        try:
            await transport.open()
        except BaseException:
            await transport.close()
            raise
        caller = Caller(
            transport=transport, policy=policy or RetryPolicy(), source=connection.source
        )
        return cls(
            caller,
            discoverer=Discoverer(),
            server=connection.server,
            namespace=connection.namespace,
        )

    async def close(self) -> None:
        """Closes all connections; calls and watches that run fail."""
        await self._caller.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *ignored: object) -> None:
        await self.close()

    def report_to(
        self,
        *,
        on_retry: Callable[[RetryNotice], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> "Cluster":
        """Returns the same cluster, which tells these about retries and warnings of the server.

        For the log of a stage. It shares connections and all that is known; it is not closed. The
        same warning is told once.
        """
        told = tell_once(on_warning) if on_warning is not None else None
        return Cluster(
            replace(self._caller, on_retry=on_retry, on_warning=told),
            discoverer=self._discoverer,
            server=self.server,
            namespace=self.namespace,
        )

    async def discover(self) -> Discovery:
        """Returns all that the server serves, at most a minute old.

        A kind that is not known is asked for at once: `find_resource`.
        """
        return await self._discoverer.discover(self._caller)

    async def refresh_discovery(self) -> Discovery:
        """Asks again what the server serves."""
        known = await self.discover()
        return await self._discoverer.refresh(self._caller, instead_of=known)

    async def find_resource(
        self, api_version: str, kind: str, *, within_seconds: float = 0
    ) -> ApiResource:
        """Returns where a kind is served; asks the server again when it is not known.

        `within_seconds` keeps asking: a definition that was just made appears a moment later.
        Raises UnknownKindError.
        """
        return await self._discoverer.find(
            self._caller, api_version, kind, within_seconds=within_seconds
        )

    async def ref_of(self, body: Object) -> ObjectRef:
        """Returns the reference to the object of a manifest, with its namespace filled in."""
        api_version, kind, namespace, name = read_identity(body)
        resource = await self.find_resource(api_version, kind)
        return ObjectRef(
            resource, (namespace or self.namespace) if resource.namespaced else "", name
        )

    async def get(self, ref: ObjectRef) -> Object | None:
        """Returns an object; None when there is none."""
        request = Request(
            what=f"read {ref}", method="GET", path=find_object(ref), is_idempotent=True
        )
        try:
            return await self._send(request)
        except NotFoundError:
            return None

    @overload
    async def list(
        self, resource: ApiResource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Listing[Object]: ...

    @overload
    async def list(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        decode: type[T],
    ) -> Listing[T]: ...

    @overload
    async def list(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        decode: type[T],
        convert: Callable[[T], U | None],
    ) -> Listing[U]: ...

    async def list(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        decode: type[Any] = dict,
        convert: Callable[[Any], Any] | None = None,
    ) -> Listing[Any]:
        """Returns all objects, of one consistent version, or raises: never a part of them.

        `labels` and `fields` are selectors. `decode` is a msgspec struct (or `msgspec.Raw`) for
        each object, for those who keep many and need little of each; `convert` makes of each what
        is kept, page by page, and leaves out what it returns None for.
        """
        request = self._make_collection_request("list", resource, namespace, labels, fields)
        if decode is not dict:
            return await self._list(request, decode, convert)

        def complete(item: Object) -> Any:
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
            return item if convert is None else convert(item)

        return await self._list(request, dict[str, Any], complete)

    @overload
    def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str,
        gather_seconds: float = 0.0,
    ) -> AsyncGenerator[WatchEvent[Object], None]: ...

    @overload
    def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str,
        decode: type[T],
        gather_seconds: float = 0.0,
    ) -> AsyncGenerator[WatchEvent[T], None]: ...

    def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str,
        decode: type[Any] = dict,
        gather_seconds: float = 0.0,
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        """Yields every change after a version, and bookmarks; ends only with an error.

        Streams that end, or break, are resumed where they were. Raises GoneError when that is too
        long ago (list again), UnavailableError after too many failures in a row, and what the
        server refuses. Close it (`contextlib.aclosing`) when it is left early. The objects are
        without their managed fields. With `gather_seconds` changes come in lots: one that follows
        another is so much later at most.
        """
        request = self._make_collection_request("watch", resource, namespace, labels, fields)
        return watch_changes(
            self._caller, request, decode, resource_version, gather_seconds=gather_seconds
        )

    async def apply(
        self, body: Object, *, manager: str = "piped", force: bool = False, dry_run: bool = False
    ) -> Object:
        """Applies a manifest on the server's side; returns the object as it is then.

        Without `force`, fields of others raise ConflictError, which names them. With a
        `resourceVersion` only that version is changed, or an object created that is not there.
        """
        ref = await self.ref_of(body)
        request = Request(
            what=f"apply {ref}",
            method="PATCH",
            path=find_object(ref),
            query=(
                ("fieldManager", manager),
                ("force", "true" if force else "false"),
                *((DRY_RUN,) if dry_run else ()),
            ),
            body=encode_body(f"apply {ref}", body),
            content_type=APPLY_PATCH,
            is_idempotent=True,
            asks_version=bool(body["metadata"].get("resourceVersion")),
        )
        return await self._send(request)

    async def create(
        self, body: Object, *, manager: str = "piped", dry_run: bool = False
    ) -> Object:
        """Creates an object. Raises AlreadyExistsError.

        When the answer is lost it is tried again: an object that is there then, and is what was
        sent by this manager, is the one that was made.
        """
        ref = await self.ref_of(body)
        check_segment(f"the name of a {ref.resource.kind}", ref.name)
        request = Request(
            what=f"create {ref}",
            method="POST",
            path=find_collection(ref.resource, ref.namespace),
            query=(("fieldManager", manager), *((DRY_RUN,) if dry_run else ())),
            body=encode_body(f"create {ref}", body),
            content_type=JSON,
            is_idempotent=True,
        )
        try:
            return await send_creation(
                self._caller, request, lambda: self.get(ref), body=body, manager=manager
            )
        except NotFoundError as error:
            self._note_missing(error)
            raise

    async def replace(
        self, body: Object, *, manager: str = "piped", dry_run: bool = False
    ) -> Object:
        """Replaces an object as a whole. Raises NotFoundError.

        With a `resourceVersion` only that version (ConflictError otherwise), without one any.
        """
        ref = await self.ref_of(body)
        if body["metadata"].get("resourceVersion"):
            return await self._put(ref, body, manager=manager, dry_run=dry_run)
        attempts = self._caller.policy.most_attempts
        while True:
            current = await self.get(ref)
            if current is None:
                raise NotFoundError(
                    f"cannot replace {ref}: it is not there",
                    http_status=404,
                    status_reason="NotFound",
                )
            version = current.get("metadata", {}).get("resourceVersion", "")
            metadata = {**body["metadata"], "resourceVersion": version}
            attempts -= 1
            try:
                return await self._put(
                    ref, {**body, "metadata": metadata}, manager=manager, dry_run=dry_run
                )
            except ConflictError:
                # Somebody wrote between our two calls; this write means any version.
                if attempts <= 0:
                    raise

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
        """Changes parts of an object. Raises NotFoundError."""
        what = f"change {subresource + ' of ' if subresource else ''}{ref}"
        request = Request(
            what=what,
            method="PATCH",
            path=find_object(ref, subresource),
            query=(("fieldManager", manager), *((DRY_RUN,) if dry_run else ())),
            body=encode_body(what, patch),
            content_type=content_type.value,
            is_idempotent=_is_idempotent(patch, content_type),
        )
        return await self._send(request)

    async def delete(
        self,
        ref: ObjectRef,
        *,
        uid: str = "",
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> bool:
        """Deletes an object; with `uid` only this one, not another that took its name.

        Returns False when it was not there. True: the server has accepted it; finalizers may
        keep it for a while.
        """
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if uid:
            options["preconditions"] = {"uid": uid}
        if dry_run:
            options["dryRun"] = ["All"]
        request = Request(
            what=f"delete {ref}",
            method="DELETE",
            path=find_object(ref),
            body=encode_body(f"delete {ref}", options),
            content_type=JSON,
            is_idempotent=True,
        )
        return await send_deletion(self._caller, request)

    async def list_events(self, ref: ObjectRef, *, uid: str = "") -> Sequence[Object]:
        """Returns the events about an object, oldest first."""
        found = await self.list(
            await self.find_resource("v1", "Event"),
            namespace=ref.namespace,
            fields=select_events(ref, uid),
        )
        return sorted(found.items, key=find_event_time)

    async def read_log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str,
        tail_lines: int,
        previous: bool = False,
    ) -> str:
        """Returns the last lines of a container, or of the one that ran before it.

        Raises NotFoundError, or InvalidError while the container has not started.
        """
        check_segment("the name of a pod", pod)
        check_segment("a namespace", namespace)
        query = [("container", container), ("tailLines", str(tail_lines))]
        if previous:
            query.append(("previous", "true"))
        request = Request(
            what=f"read the log of {describe_object('Pod', pod, namespace)}",
            method="GET",
            path=f"/api/v1/namespaces/{namespace}/pods/{pod}/log",
            query=query,
            accept="*/*",
            is_idempotent=True,
        )
        return await read_tail(self._caller, request)

    async def _send(self, request: Request) -> Object:
        try:
            answer = await self._caller.call(request)
        except NotFoundError as error:
            self._note_missing(error)
            raise
        return decode_object(request.what, answer.body)

    async def _list(
        self, request: Request, kind: Any, convert: Callable[[Any], Any] | None
    ) -> Listing[Any]:
        try:
            return await list_all(self._caller, request, kind, convert)
        except NotFoundError as error:
            self._note_missing(error)
            raise

    def _note_missing(self, error: NotFoundError) -> None:
        """Forgets what is served when it is the path that is not there, not the object."""
        if NO_PATH in error.message or not error.status_reason:
            self._discoverer.expire()

    async def _put(self, ref: ObjectRef, body: Object, *, manager: str, dry_run: bool) -> Object:
        request = Request(
            what=f"replace {ref}",
            method="PUT",
            path=find_object(ref),
            query=(("fieldManager", manager), *((DRY_RUN,) if dry_run else ())),
            body=encode_body(f"replace {ref}", body),
            content_type=JSON,
        )
        return await self._send(request)

    def _make_collection_request(
        self, verb: str, resource: ApiResource, namespace: str, labels: str, fields: str
    ) -> Request:
        where = f" in namespace {namespace!r}" if namespace and resource.namespaced else ""
        query = []
        if labels:
            query.append(("labelSelector", labels))
        if fields:
            query.append(("fieldSelector", fields))
        return Request(
            what=f"{verb} {resource.plural} of {resource.api_version}{where}",
            method="GET",
            path=find_collection(resource, namespace),
            query=tuple(query),
            is_idempotent=True,
        )


def _is_idempotent(patch: Object | Sequence[Object], content_type: PatchType) -> bool:
    """Returns whether a patch has the same effect twice, and asks for no certain version."""
    if content_type is PatchType.JSON or not isinstance(patch, dict):
        return False
    metadata = patch.get("metadata")
    return not (isinstance(metadata, dict) and metadata.get("resourceVersion"))
