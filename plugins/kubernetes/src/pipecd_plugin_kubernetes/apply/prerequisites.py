# SPDX-License-Identifier: Apache-2.0
"""What must be there before manifests can be applied: namespaces, and definitions of kinds."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pipecd_plugin_kubernetes.apply.outcome import ApplyError, Limits, is_being_deleted
from pipecd_plugin_kubernetes.apply.watching import wait_for_object
from pipecd_plugin_kubernetes.client import AlreadyExistsError, Cluster, Object, ObjectRef
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_sdk import StageLog
from pipecd_sdk.kit.text import make_printable_line

_LONGEST_TEXT: Final = 500

Kind = tuple[str, str]
"""An API group and a kind in it."""


def is_definition(manifest: Manifest) -> bool:
    """Returns whether a manifest defines a kind."""
    return (manifest.group, manifest.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")


def find_defined_kinds(manifests: Iterable[Manifest]) -> dict[Kind, Manifest]:
    """Returns the kinds that are defined among manifests, with their definitions."""
    found: dict[Kind, Manifest] = {}
    for manifest in manifests:
        if is_definition(manifest):
            spec = find_map(manifest.body, "spec")
            kind = find_map(spec, "names").get("kind")
            found[(str(spec.get("group", "")), str(kind))] = manifest
    return found


async def wait_established(
    cluster: Cluster, ref: ObjectRef, live: Object, *, limits: Limits
) -> None:
    """Waits until the server serves a kind that was just defined. Raises ApplyError."""

    def is_decided(body: Object | None) -> bool:
        return body is None or _is_established(body) or bool(_find_refusal(body))

    last: Object | None = live
    if not is_decided(live):
        _, last = await wait_for_object(
            cluster, ref, is_decided, timeout_seconds=limits.definition_seconds
        )
    if last is None:
        raise ApplyError(f"{ref} was deleted by somebody while it was applied", hint="sync again")
    if refusal := _find_refusal(last):
        raise ApplyError(f"{ref} is not accepted by the server: {refusal}")
    if not _is_established(last):
        raise ApplyError(
            f"{ref} was applied, but the server did not begin to serve its kind within"
            f" {limits.definition_seconds:g} seconds",
            hint="look at the conditions of its status",
        )


def _is_established(body: Mapping[str, Any]) -> bool:
    return any(
        each.get("type") == "Established" and each.get("status") == "True"
        for each in _read_conditions(body)
    )


def _find_refusal(body: Mapping[str, Any]) -> str:
    for each in _read_conditions(body):
        if each.get("type") == "NamesAccepted" and each.get("status") == "False":
            return _shorten(each.get("message") or each.get("reason"))
    return ""


def _read_conditions(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    conditions = find_map(body, "status").get("conditions")
    if not isinstance(conditions, list):
        return []
    return [each for each in conditions if isinstance(each, dict)]


async def ensure_namespace(cluster: Cluster, name: str, *, log: StageLog, limits: Limits) -> None:
    """Makes a namespace if there is none; one that is being deleted is waited for first."""
    resource = await cluster.find_resource("v1", "Namespace")
    ref = ObjectRef(resource, "", name)
    live = await cluster.get(ref)
    if live is not None and is_being_deleted(live):
        await wait_gone(cluster, ref, live, log=log, limits=limits)
        live = None
    if live is not None:
        return
    try:
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except AlreadyExistsError:
        return
    log.info("created namespace %s", name)


async def wait_gone(
    cluster: Cluster, ref: ObjectRef, live: Object, *, log: StageLog, limits: Limits
) -> None:
    """Waits until an object that is being deleted is gone. Raises ApplyError with what holds it."""
    log.info("%s is being deleted; waiting until it is gone", ref)
    is_gone, last = await wait_for_object(
        cluster,
        ref,
        lambda body: body is None or not is_being_deleted(body),
        timeout_seconds=limits.namespace_seconds,
    )
    if not is_gone:
        raise ApplyError(
            f"{ref} is being deleted and was not gone after {limits.namespace_seconds:g} seconds"
            f"{describe_hold(last or live)}",
            hint="let the deletion finish, then sync again",
        )


def describe_hold(body: Mapping[str, Any]) -> str:
    """Returns what keeps a deleted object, as the end of a sentence; empty when nothing does."""
    parts: list[str] = []
    finalizers = find_map(body, "metadata").get("finalizers")
    if isinstance(finalizers, list) and finalizers:
        names = ", ".join(_shorten(each) for each in finalizers[:10])
        parts.append(f"it waits for its finalizers: {names}")
    parts += [
        _shorten(each.get("message") or each.get("type"))
        for each in _read_conditions(body)
        if each.get("status") == "True" and str(each.get("type", "")).startswith("Namespace")
    ]
    return "".join(f"; {part}" for part in parts)


def _shorten(text: object) -> str:
    return make_printable_line(str(text or ""))[:_LONGEST_TEXT]
