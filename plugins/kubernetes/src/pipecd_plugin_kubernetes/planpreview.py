# SPDX-License-Identifier: Apache-2.0
"""What a commit would change: its manifests against those that run, and what the server says to it.

Manifests of both commits are rendered, each with its own configuration; nothing of a branch is run.
The server is only asked by dry runs. One that cannot be asked costs its part of the preview alone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pipecd_plugin_kubernetes.apply.concurrency import run_in_order
from pipecd_plugin_kubernetes.apply.known import list_autoscalers
from pipecd_plugin_kubernetes.apply.outcome import Limits
from pipecd_plugin_kubernetes.apply.replicas import find_scale_targets, has_replicas
from pipecd_plugin_kubernetes.client import Cluster, ClusterError, NotFoundError, UnknownKindError
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.config_hash import add_config_hashes
from pipecd_plugin_kubernetes.desired import adopt_marks
from pipecd_plugin_kubernetes.differences import (
    DriftChange,
    ObjectDifference,
    format_counts,
    format_heading,
    format_nodes,
    format_notes,
    hide_values,
)
from pipecd_plugin_kubernetes.dry_run import DryRunner
from pipecd_plugin_kubernetes.fields import shorten
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey, find_map
from pipecd_plugin_kubernetes.metadata import add_builtin
from pipecd_plugin_kubernetes.strategy import open_values
from pipecd_sdk import Preview
from pipecd_sdk.kit.diff import MASK, MISSING, Node, diff, format_unified
from pipecd_sdk.kit.text import make_printable

MOST_ASKED: Final = 200
"""Objects about which the server is asked; a preview must not take longer than people wait."""
_WORDS: Final = {
    DriftChange.ADD: "added",
    DriftChange.CHANGE: "changed",
    DriftChange.DELETE: "removed from git",
}
_ORDER: Final = tuple(_WORDS)
_UNPRUNED: Final = "it stays in the cluster unless a stage prunes"

Load = Callable[[], Awaitable[Sequence[Manifest]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewQuestion:
    """One application on one deploy target."""

    application_id: str
    piped_id: str
    options: KubernetesOptions
    """Those of the new commit."""
    load_target: Load
    load_running: Load | None
    """None on a first deployment."""
    connect: Callable[[], Awaitable[Cluster]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Previewed:
    difference: ObjectDifference
    """Its nodes are what the manifests differ in."""
    old: Manifest | None = None
    new: Manifest | None = None
    also: Sequence[Node] = ()
    """What else would change in the cluster."""


async def preview(asked: PreviewQuestion, *, limits: Limits | None = None) -> Preview:
    """Returns what a commit would change. Raises StageFailedError when it cannot be rendered."""
    target = await asked.load_target()
    running = await asked.load_running() if asked.load_running is not None else []
    found = compare_manifests(running, target)
    if not found:
        return Preview(summary="no manifest would change", no_change=True)
    found, remark = await _ask_cluster(asked, found, target, limits or Limits())
    counts = format_counts([each.difference for each in found], _WORDS)
    first = " (the first deployment)" if asked.load_running is None else ""
    return Preview(summary=f"{counts}{first}", details=_format(found, remark))


def compare_manifests(running: Sequence[Manifest], target: Sequence[Manifest]) -> list[_Previewed]:
    """Returns the objects whose manifests differ between two commits."""
    before = {each.key.normalize(): each for each in running}
    after = {each.key.normalize(): each for each in target}
    found: list[_Previewed] = []
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is None and new is not None:
            found.append(_make(DriftChange.ADD, None, new))
        elif new is None and old is not None:
            found.append(_make(DriftChange.DELETE, old, None, notes=[_UNPRUNED]))
        elif old is not None and new is not None:
            nodes = diff(
                open_values(old), open_values(new), equate_empty=True, numeric_strings=True
            )
            if nodes:
                found.append(_make(DriftChange.CHANGE, old, new, nodes=nodes))
    return sorted(
        found, key=lambda each: (_ORDER.index(each.difference.change), str(each.difference.key))
    )


def _make(
    change: DriftChange,
    old: Manifest | None,
    new: Manifest | None,
    *,
    nodes: Sequence[Node] = (),
    notes: Sequence[str] = (),
) -> _Previewed:
    manifest = new or old
    assert manifest is not None, "one of them is there"  # noqa: S101
    key: ResourceKey = manifest.key
    hidden = hide_values(nodes, key, config_maps=False)
    difference = ObjectDifference(key=key, change=change, nodes=hidden, notes=notes)
    return _Previewed(difference=difference, old=old, new=new)


async def _ask_cluster(
    asked: PreviewQuestion, found: list[_Previewed], target: Sequence[Manifest], limits: Limits
) -> tuple[list[_Previewed], str]:
    """Returns the same with what the server says, and a remark when it could not be asked."""
    marked = add_builtin(target, piped_id=asked.piped_id, application_id=asked.application_id)
    add_config_hashes(marked)
    wanted = {each.key: each for each in marked}
    changed = [each for each in found if each.new is not None][:MOST_ASKED]
    try:
        cluster = await asked.connect()
        runner = await _make_runner(cluster, [wanted[each.difference.key] for each in changed])

        async def ask(each: _Previewed) -> _Previewed:
            return await _ask_one(each, wanted[each.difference.key], runner, asked.options)

        answered = await run_in_order(changed, ask, most_at_once=limits.most_at_once)
    except ClusterError as error:
        return found, f"The cluster was not asked what it makes of it: {error.reason()}"
    by_key = {each.difference.key: each for each in answered}
    told = [by_key.get(each.difference.key, each) for each in found]
    more = sum(each.new is not None for each in found) - len(changed)
    return told, f"The cluster was not asked about {more} of them." if more > 0 else ""


async def _make_runner(cluster: Cluster, manifests: Sequence[Manifest]) -> DryRunner:
    namespaces = {each.namespace or cluster.namespace for each in manifests if has_replicas(each)}
    autoscalers = await list_autoscalers(cluster, sorted(namespaces)) if namespaces else []
    return DryRunner(
        cluster=cluster,
        autoscaled=find_scale_targets(autoscalers, namespace=cluster.namespace),
    )


async def _ask_one(
    previewed: _Previewed, manifest: Manifest, runner: DryRunner, options: KubernetesOptions
) -> _Previewed:
    try:
        ref = await runner.cluster.ref_of(manifest.body)
        live = await runner.cluster.get(ref)
        if live is None:
            refusal = await runner.check(manifest, ref)
            return _add_refusal(previewed, refusal)
        adopted = adopt_marks(manifest, live, variant_key=options.variant_label.key)
        result = await runner.compare(adopted, ref, live)
    except UnknownKindError as error:
        return _add_refusal(previewed, error.reason())
    except NotFoundError:
        return previewed  # its namespace is not there yet: nothing can be asked in it
    if result.refusal:
        return _add_refusal(previewed, result.refusal)
    told = [node.path for node in previewed.difference.nodes]
    also = [node for node in result.nodes if not any(_overlap(node.path, path) for path in told)]
    hidden = hide_values(also, previewed.difference.key, config_maps=False)
    return replace(previewed, also=hidden)


def _overlap(first: str, second: str) -> bool:
    return first == second or first.startswith(f"{second}.") or second.startswith(f"{first}.")


def _add_refusal(previewed: _Previewed, refusal: str) -> _Previewed:
    if not refusal:
        return previewed
    notes = [*previewed.difference.notes, f"the cluster's dry run refuses it: {refusal}"]
    return replace(previewed, difference=replace(previewed.difference, notes=notes))


def _format(found: Sequence[_Previewed], remark: str) -> str:
    lines = ["--- what runs\n+++ the new commit\n\n"]
    if remark:
        lines.append(f"# {shorten(remark)}\n\n")
    for number, each in enumerate(found, start=1):
        lines += [
            format_heading(number, each.difference, _WORDS),
            format_notes(each.difference),
            "\n",
            _format_change(each),
        ]
        if each.also:
            lines += ["\n# in the cluster this would change too:\n", format_nodes(each.also)]
        lines.append("\n")
    return "".join(lines)


def _format_change(previewed: _Previewed) -> str:
    is_secret = (previewed.new or previewed.old or _NOTHING).is_secret()
    if is_secret and previewed.difference.change is DriftChange.CHANGE:
        return format_nodes(previewed.difference.nodes)
    old, new = (_show(each) for each in (previewed.old, previewed.new))
    return make_printable(format_unified(old, new))


_NOTHING: Final = Manifest({})


def _show(manifest: Manifest | None) -> Any:
    if manifest is None:
        return MISSING
    if not manifest.is_secret():
        return manifest.body
    body: Mapping[str, Any] = manifest.body
    shown = {
        key: value for key, value in body.items() if key not in {"data", "stringData", "metadata"}
    }
    values = {**find_map(manifest.body, "data"), **find_map(manifest.body, "stringData")}
    metadata = find_map(manifest.body, "metadata")
    return {
        **shown,
        "metadata": {key: value for key, value in metadata.items() if key != "annotations"},
        "data": dict.fromkeys(values, MASK),
    }
