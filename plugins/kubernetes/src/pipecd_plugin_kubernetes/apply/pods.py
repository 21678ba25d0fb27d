# SPDX-License-Identifier: Apache-2.0
"""Which pods of a workload are in trouble, why, and what they said last."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_kubernetes.client import Cluster, ClusterError, Object
from pipecd_plugin_kubernetes.fields import shorten
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_sdk.kit.text import make_printable

_MOST_PODS: Final = 3
_MOST_LINES: Final = 15
_MOST_CHARACTERS: Final = 4_000
"""Of one container's last lines."""
_WAITING_WELL: Final = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTrouble:
    """Something that keeps a pod from being ready."""

    pod: str
    container: str
    """Empty when it is about the pod as a whole."""
    reason: str
    message: str
    restarts: int = 0

    def __str__(self) -> str:
        where = f", container {self.container}" if self.container else ""
        again = f", restarted {self.restarts} times" if self.restarts else ""
        text = ": ".join(part for part in (self.reason, self.message) if part)
        return f"pod {self.pod}{where}: {text}{again}"


def format_selector(workload: Mapping[str, Any]) -> str:
    """Returns the label selector of a workload as the API takes it; empty when it has none."""
    selector = find_map(workload, "spec", "selector")
    parts = [f"{key}={value}" for key, value in sorted(find_map(selector, "matchLabels").items())]
    expressions = selector.get("matchExpressions")
    for each in expressions if isinstance(expressions, list) else []:
        parts += _format_expression(each)
    return ",".join(parts)


def _format_expression(expression: object) -> Iterator[str]:
    found = find_map(expression)
    key, operator, values = found.get("key"), found.get("operator"), found.get("values")
    listed = ",".join(str(each) for each in values) if isinstance(values, list) else ""
    match operator:
        case "In":
            yield f"{key} in ({listed})"
        case "NotIn":
            yield f"{key} notin ({listed})"
        case "Exists":
            yield str(key)
        case "DoesNotExist":
            yield f"!{key}"


def find_troubles(pods: Sequence[Mapping[str, Any]]) -> list[PodTrouble]:
    """Returns what is wrong with pods that are not ready; of those that only start, nothing."""
    return [trouble for pod in pods for trouble in _find_pod_troubles(pod)]


def _find_pod_troubles(pod: Mapping[str, Any]) -> Iterator[PodTrouble]:
    name = shorten(str(find_map(pod, "metadata").get("name", "")))
    status = find_map(pod, "status")
    if is_ready(pod) or find_map(pod, "metadata").get("deletionTimestamp"):
        return
    for condition in _read_maps(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield PodTrouble(
                pod=name,
                container="",
                reason=_read(condition, "reason"),
                message=_read(condition, "message"),
            )
    if status.get("phase") == "Failed":
        yield PodTrouble(
            pod=name,
            container="",
            reason=_read(status, "reason") or "it failed",
            message=_read(status, "message"),
        )
    for container in _iter_containers(status):
        if (trouble := _find_container_trouble(name, container)) is not None:
            yield trouble


def _find_container_trouble(pod: str, container: Mapping[str, Any]) -> PodTrouble | None:
    waiting = find_map(container, "state", "waiting")
    ended = find_map(container, "state", "terminated")
    restarts = container.get("restartCount")
    if waiting and _read(waiting, "reason") not in _WAITING_WELL:
        cause = waiting
    elif ended and ended.get("exitCode") != 0:
        cause = ended
    else:
        return None
    before = find_map(container, "lastState", "terminated")
    code = next((each["exitCode"] for each in (ended, before) if "exitCode" in each), None)
    message = _read(cause, "message")
    if code is not None:
        message = f"exit code {shorten(str(code))}" + (f": {message}" if message else "")
    return PodTrouble(
        pod=pod,
        container=_read(container, "name"),
        reason=_read(cause, "reason") or "not running",
        message=message,
        restarts=restarts if isinstance(restarts, int) else 0,
    )


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Returns whether a pod takes part, or has done its work."""
    status = find_map(pod, "status")
    if status.get("phase") == "Succeeded":
        return True
    return any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in _read_maps(status, "conditions")
    )


async def list_pods(cluster: Cluster, workload: Mapping[str, Any]) -> list[Object]:
    """Returns the pods of a workload that its latest change is about, the unready ones first."""
    resource = await cluster.find_resource("v1", "Pod")
    namespace = str(find_map(workload, "metadata").get("namespace", ""))
    if workload.get("kind") == "Pod":
        return [dict(workload)]
    selector = format_selector(workload)
    if not selector:
        return []
    listing = await cluster.list(resource, namespace=namespace, labels=selector)
    latest = await _find_latest_label(cluster, workload, selector)
    pods = [each for each in listing if _has_label(each, latest)] or list(listing)
    return sorted(pods, key=lambda each: (is_ready(each), Manifest(each).name))


async def _find_latest_label(
    cluster: Cluster, workload: Mapping[str, Any], selector: str
) -> tuple[str, str] | None:
    """Returns the label that tells pods of the latest revision from older ones."""
    metadata = find_map(workload, "metadata")
    if workload.get("kind") == "StatefulSet":
        revision = find_map(workload, "status").get("updateRevision")
        return ("controller-revision-hash", str(revision)) if revision else None
    if workload.get("kind") != "Deployment":
        return None
    revision = find_map(metadata, "annotations").get("deployment.kubernetes.io/revision")
    resource = await cluster.find_resource("apps/v1", "ReplicaSet")
    sets = await cluster.list(
        resource, namespace=str(metadata.get("namespace", "")), labels=selector
    )
    for each in sets:
        found = Manifest(each)
        is_latest = found.annotations.get("deployment.kubernetes.io/revision") == revision
        if is_latest and revision and "pod-template-hash" in found.labels:
            return "pod-template-hash", found.labels["pod-template-hash"]
    return None


def _has_label(pod: Object, label: tuple[str, str] | None) -> bool:
    return label is None or Manifest(pod).labels.get(label[0]) == label[1]


async def describe_pods(cluster: Cluster, workload: Mapping[str, Any]) -> list[str]:
    """Returns lines that say which pods of a workload are in trouble, with what they said last.

    Says what cannot be found out instead of raising: the workload's own failure is the news.
    """
    try:
        pods = await list_pods(cluster, workload)
    except ClusterError as error:
        return [f"its pods cannot be listed: {error}"]
    unready = [pod for pod in pods if not is_ready(pod)]
    if not unready:
        return []
    lines: list[str] = []
    for pod in unready[:_MOST_PODS]:
        troubles = find_troubles([pod])
        name = shorten(Manifest(pod).name)
        phase = shorten(str(find_map(pod, "status").get("phase", "unknown")))
        lines += [str(each) for each in troubles] or [f"pod {name}: not ready, phase {phase}"]
        lines += await _read_last_lines(cluster, pod)
    if len(unready) > _MOST_PODS:
        lines.append(f"and {len(unready) - _MOST_PODS} more pods that are not ready")
    return lines


async def _read_last_lines(cluster: Cluster, pod: Mapping[str, Any]) -> list[str]:
    metadata, status = find_map(pod, "metadata"), find_map(pod, "status")
    lines: list[str] = []
    for container in _iter_containers(status):
        if container.get("ready") is True or not _has_run(container):
            continue
        name = str(container.get("name", ""))
        is_running = bool(find_map(container, "state", "running"))
        for previous in (False, True) if is_running else (True, False):
            if previous and not container.get("restartCount"):
                continue
            try:
                text = await cluster.read_log(
                    str(metadata.get("namespace", "")),
                    str(metadata.get("name", "")),
                    container=name,
                    tail_lines=_MOST_LINES,
                    previous=previous,
                )
            except ClusterError:
                continue  # a container that is gone has no log any more
            if shown := _show_lines(text):
                which = "the container before it" if previous else "its last lines"
                lines += [f"  {shorten(name)}, {which}:", *shown]
                break
    return lines


def _has_run(container: Mapping[str, Any]) -> bool:
    return bool(
        container.get("restartCount")
        or find_map(container, "state", "running")
        or find_map(container, "state", "terminated")
    )


def _show_lines(text: str) -> list[str]:
    clean = make_printable(text[-_MOST_CHARACTERS:]).splitlines()
    return [f"    {line}" for line in clean[-_MOST_LINES:] if line.strip()]


def _iter_containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _read_maps(status, "initContainerStatuses")
    yield from _read_maps(status, "containerStatuses")


def _read_maps(body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = body.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _read(body: Mapping[str, Any], key: str) -> str:
    found = body.get(key)
    return shorten(found) if isinstance(found, str) else ""
