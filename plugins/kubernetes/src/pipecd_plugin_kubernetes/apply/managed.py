# SPDX-License-Identifier: Apache-2.0
"""Finds everything that an application has in a cluster: all of it, or an error."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipecd_plugin_kubernetes.apply.concurrency import run_in_order
from pipecd_plugin_kubernetes.apply.outcome import ApplyError, read_uid
from pipecd_plugin_kubernetes.apply.takeover import MANAGER
from pipecd_plugin_kubernetes.client import (
    ApiError,
    ApiResource,
    Cluster,
    NotFoundError,
    Object,
    ObjectRef,
)
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.metadata import APPLICATION, MANAGED_BY

Variant = tuple[str, str]
"""The key and the value of the label of a variant."""

_LISTS_AT_ONCE: Final = 8
_NEEDED_VERBS: Final = frozenset({"list", "get", "delete"})
_WITHOUT_OBJECTS: Final = frozenset(
    {"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"}
)
"""Groups that only answer questions: nobody can have applied anything there."""
_NEVER_APPLIED: Final = frozenset({("", "Event"), ("events.k8s.io", "Event")})
"""What nobody deploys and clusters have many of."""
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingFailure:
    """Something that could not be listed."""

    group: str
    kind: str
    """Empty when nothing is known of the whole group."""
    reason: str

    def __str__(self) -> str:
        what = f"{self.kind} ({self.group})" if self.group else self.kind
        return f"{what if self.kind else f'the API group {self.group!r}'}: {self.reason}"


class ListingError(ApplyError):
    """Not everything of an application could be listed, so nothing may be deleted."""

    def __init__(self, failures: Sequence[ListingFailure]) -> None:
        named = "; ".join(str(each) for each in failures[:_MOST_NAMED])
        more = len(failures) - _MOST_NAMED
        super().__init__(
            f"what the application has in the cluster could not be listed: {named}"
            + (f"; and {more} more" if more > 0 else ""),
            hint="give piped the right to list these kinds, or repair or remove the APIService"
            " behind the group",
        )
        self.failures = tuple(failures)

    def concerns(self, kinds: Collection[tuple[str, str]]) -> bool:
        """Returns whether objects of these groups and kinds may be among what was not listed."""
        groups = {group for group, _ in kinds}
        return any(
            (each.group, each.kind) in kinds if each.kind else each.group in groups
            for each in self.failures
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedObject:
    """A live object of an application."""

    ref: ObjectRef
    body: Object

    @property
    def uid(self) -> str:
        """Returns the uid."""
        return read_uid(self.body)

    @property
    def manifest(self) -> Manifest:
        """Returns the object as a manifest, to read: its key has the group that it is served in."""
        return Manifest(self.body)


async def find_managed(
    cluster: Cluster, *, application_id: str, variant: Variant | None = None
) -> list[Object]:
    """Returns every live object that carries the labels of an application, each once.

    All kinds that can be listed are asked for. Raises ListingError when one of them fails, or when
    it is not known which kinds there are: a part of the list never looks like the whole.
    """
    found = await list_managed(cluster, application_id=application_id, variant=variant)
    return [each.body for each in found]


async def list_managed(
    cluster: Cluster,
    *,
    application_id: str,
    variant: Variant | None = None,
    on_unlisted: Callable[[ListingError], None] | None = None,
) -> list[ManagedObject]:
    """Returns the same with the place of each.

    An object that is served by two API groups is there once for each of them. `on_unlisted` may
    raise, or be content with what could be listed.
    """
    discovery = await cluster.refresh_discovery()
    failures = [
        ListingFailure(group=group, kind="", reason=reason)
        for group, reason in sorted(discovery.failed_groups.items())
        if group not in _WITHOUT_OBJECTS
    ]
    selector = _format_selector(application_id, variant)

    async def list_kind(resource: ApiResource) -> list[ManagedObject]:
        try:
            listing = await cluster.list(resource, labels=selector)
        except NotFoundError:
            return []  # a kind that was there at discovery and has been removed since
        except ApiError as error:
            failures.append(
                ListingFailure(group=resource.group, kind=resource.kind, reason=str(error))
            )
            return []
        return [_make_managed(resource, each) for each in listing]

    resources = [
        each
        for each in discovery.select_preferred()
        if each.verbs >= _NEEDED_VERBS and (each.group, each.kind) not in _NEVER_APPLIED
    ]
    results = await run_in_order(resources, list_kind, most_at_once=_LISTS_AT_ONCE)
    if failures:
        error = ListingError(failures)
        if on_unlisted is None:
            raise error
        on_unlisted(error)
    return [each for found in results for each in found]


def _format_selector(application_id: str, variant: Variant | None) -> str:
    if not application_id:
        raise ApplyError("the application has no id, so what it owns cannot be told")
    parts = [f"{MANAGED_BY}={MANAGER}", f"{APPLICATION}={application_id}"]
    if variant is not None:
        parts.append(f"{variant[0]}={variant[1]}")
    return ",".join(parts)


def _make_managed(resource: ApiResource, body: Object) -> ManagedObject:
    metadata = find_map(body, "metadata")
    namespace = str(metadata.get("namespace", "")) if resource.namespaced else ""
    ref = ObjectRef(resource, namespace, str(metadata.get("name", "")))
    # In lists the server leaves out what the kind is.
    whole = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
    return ManagedObject(ref=ref, body=whole)


def is_applied_by(body: Mapping[str, object], application_id: str) -> bool:
    """Returns whether piped applied an object for this application, and nobody else owns it.

    Labels are copied by controllers (from a Service to its endpoints), annotations are not.
    """
    metadata = find_map(body, "metadata")
    annotations = find_map(metadata, "annotations")
    return (
        not metadata.get("ownerReferences")
        and annotations.get(MANAGED_BY) == MANAGER
        and annotations.get(APPLICATION) == application_id
    )
