# SPDX-License-Identifier: Apache-2.0
"""Which kinds a server serves: asked all at once, or group by group from older servers.

A group whose own server does not answer is recorded and does not hide the others.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pipecd_plugin_kubernetes.client.caller import Caller, RetryPolicy
from pipecd_plugin_kubernetes.client.decoding import decode_object
from pipecd_plugin_kubernetes.client.errors import (
    ClusterError,
    NotFoundError,
    UnavailableError,
    UnknownKindError,
)
from pipecd_plugin_kubernetes.client.refusals import clean_message
from pipecd_plugin_kubernetes.client.requests import Request, join_path
from pipecd_plugin_kubernetes.client.resources import ApiResource, Discovery, Object

AGGREGATED: Final = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)
POLL_SECONDS: Final = 0.25
KEPT_SECONDS: Final = 60.0
"""How long what is known counts as all there is: others define kinds too."""
FAILED_KEPT_SECONDS: Final = 10.0
"""The same while a group is broken: it is repaired sooner or later."""
ONCE_MORE: Final = RetryPolicy(most_attempts=2, total_seconds=10)
"""For a single group: one that is broken stays so, and everybody waits for the answer."""


class Discoverer:
    """What is known about a server's kinds; shared by all who use it."""

    def __init__(self, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self._now_seconds = now_seconds
        self._lock = asyncio.Lock()
        self._known: Discovery | None = None
        self._by_kind: dict[tuple[str, str], ApiResource] = {}
        self._ends = 0.0

    async def discover(self, caller: Caller) -> Discovery:
        """Returns what is known, at most a minute old; who prunes must know every kind."""
        known = self._known
        if known is not None and self._now_seconds() < self._ends:
            return known
        return await self.refresh(caller, instead_of=known)

    def expire(self) -> None:
        """Something that was known is not served any more: the next who asks, asks the server."""
        self._ends = 0.0
        self._by_kind = {}

    async def refresh(self, caller: Caller, *, instead_of: Discovery | None) -> Discovery:
        """Asks again, once for all who know the same."""
        async with self._lock:
            if self._known is not None and self._known is not instead_of:
                return self._known
            found = await ask_server(caller)
            self._by_kind = {(each.api_version, each.kind): each for each in found.resources}
            self._known = found
            kept_seconds = FAILED_KEPT_SECONDS if found.failed_groups else KEPT_SECONDS
            self._ends = self._now_seconds() + kept_seconds
            return found

    async def find(
        self, caller: Caller, api_version: str, kind: str, *, within_seconds: float
    ) -> ApiResource:
        """Returns a kind, asking again for one that is not known. Raises UnknownKindError."""
        if (found := self._by_kind.get((api_version, kind))) is not None:
            return found
        known = await self.discover(caller)
        if (found := self._by_kind.get((api_version, kind))) is not None:
            return found
        loop = asyncio.get_running_loop()
        ends = loop.time() + within_seconds
        while True:
            known = await self.refresh(caller, instead_of=known)
            if (found := self._by_kind.get((api_version, kind))) is not None:
                return found
            if loop.time() + POLL_SECONDS > ends:
                raise _make_unknown(known, api_version, kind)
            await asyncio.sleep(POLL_SECONDS)


def _make_unknown(known: Discovery, api_version: str, kind: str) -> UnknownKindError:
    group = api_version.rpartition("/")[0]
    shown = f"{clean_message(kind, 100)!r} of {clean_message(api_version, 100)!r}"
    if reason := known.failed_groups.get(group):
        return UnknownKindError(
            f"it is not known whether the cluster serves {shown}: {reason}",
            api_version=api_version,
            kind=kind,
            failed=True,
        )
    others = sorted({each.api_version for each in known.resources if each.kind == kind})
    return UnknownKindError(
        f"the cluster does not serve {shown}",
        api_version=api_version,
        kind=kind,
        hint=(
            f"it serves this kind in {', '.join(others[:5])}"
            if others
            else "is its CustomResourceDefinition installed?"
        ),
    )


async def ask_server(caller: Caller) -> Discovery:
    """Asks for everything. Raises ApiError only when nothing at all could be found out."""
    resources: list[ApiResource] = []
    failed: dict[str, str] = {}
    core, groups = await _ask(caller, "/api"), await _ask(caller, "/apis")
    for answer in (core, groups):
        if answer.get("kind") == "APIGroupDiscoveryList":
            _read_aggregated(answer, resources, failed)
        else:
            await _ask_each(caller, answer, resources, failed)
    return Discovery(resources=tuple(resources), failed_groups=failed)


async def _ask(caller: Caller, path: str) -> Object:
    request = Request(
        what=f"find out what the cluster serves ({path})",
        method="GET",
        path=path,
        accept=AGGREGATED,
        is_idempotent=True,
    )
    return decode_object(request.what, (await caller.call(request)).body)


def _read_aggregated(answer: Object, resources: list[ApiResource], failed: dict[str, str]) -> None:
    for group in _iter_maps(answer.get("items")):
        metadata = group.get("metadata")
        name = _read_text(metadata, "name")
        for version in _iter_maps(group.get("versions")):
            number = _read_text(version, "version")
            if version.get("freshness") == "Stale":
                failed[name] = _explain_failed(name, "its own server does not answer")
            resources.extend(
                found
                for each in _iter_maps(version.get("resources"))
                if (found := _read_aggregated_resource(name, number, each)) is not None
            )


def _read_aggregated_resource(group: str, version: str, given: Object) -> ApiResource | None:
    response = given.get("responseKind")
    kind = _read_text(response, "kind")
    plural = _read_text(given, "resource")
    if not kind or not plural or not version:
        return None
    return ApiResource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=given.get("scope") == "Namespaced",
        verbs=_read_texts(given.get("verbs")),
        subresources=frozenset(
            _read_text(each, "subresource") for each in _iter_maps(given.get("subresources"))
        ),
    )


async def _ask_each(
    caller: Caller, answer: Object, resources: list[ApiResource], failed: dict[str, str]
) -> None:
    """Asks for every version of every group; the preferred version of a group comes first."""
    wanted = list(_iter_versions(answer))
    found: list[Sequence[ApiResource] | ClusterError] = [()] * len(wanted)
    hasty = replace(caller, policy=ONCE_MORE)

    async def ask_one(index: int, group: str, version: str) -> None:
        path = join_path(*(("apis", group) if group else ("api",)), version)
        try:
            found[index] = tuple(_read_resources(group, version, await _ask(hasty, path)))
        except NotFoundError:
            pass  # it went away between the two questions
        except ClusterError as error:
            found[index] = error

    async with asyncio.TaskGroup() as tasks:
        for index, (group, version) in enumerate(wanted):
            tasks.create_task(ask_one(index, group, version))
    for (group, _), each in zip(wanted, found, strict=True):
        if isinstance(each, UnavailableError):
            failed[group] = _explain_failed(group, each.message or str(each))
        elif isinstance(each, ClusterError):
            raise each
        else:
            resources.extend(each)


def _iter_versions(answer: Object) -> Iterator[tuple[str, str]]:
    if isinstance(versions := answer.get("versions"), list):  # of the core group
        yield from (("", each) for each in versions if isinstance(each, str))
    for group in _iter_maps(answer.get("groups")):
        name = _read_text(group, "name")
        preferred = _read_text(group.get("preferredVersion"), "version")
        numbers = [_read_text(each, "version") for each in _iter_maps(group.get("versions"))]
        numbers.sort(key=lambda number: number != preferred)
        yield from ((name, number) for number in numbers if name and number)


def _read_resources(group: str, version: str, answer: Object) -> Iterable[ApiResource]:
    given = list(_iter_maps(answer.get("resources")))
    subresources: dict[str, set[str]] = {}
    for each in given:
        plural, slash, sub = _read_text(each, "name").partition("/")
        if slash:
            subresources.setdefault(plural, set()).add(sub)
    for each in given:
        plural, kind = _read_text(each, "name"), _read_text(each, "kind")
        if plural and kind and "/" not in plural:
            yield ApiResource(
                group=group,
                version=version,
                kind=kind,
                plural=plural,
                namespaced=each.get("namespaced") is True,
                verbs=_read_texts(each.get("verbs")),
                subresources=frozenset(subresources.get(plural, ())),
            )


def _explain_failed(group: str, reason: str) -> str:
    return f"what the API group {clean_message(group, 100)!r} serves is not known: {reason}"


def _iter_maps(given: object) -> Iterator[Object]:
    if isinstance(given, list):
        yield from (each for each in given if isinstance(each, dict))


def _read_text(given: Any, key: str) -> str:
    value = given.get(key) if isinstance(given, dict) else None
    return value if isinstance(value, str) else ""


def _read_texts(given: object) -> frozenset[str]:
    if not isinstance(given, list):
        return frozenset()
    return frozenset(each for each in given if isinstance(each, str))
