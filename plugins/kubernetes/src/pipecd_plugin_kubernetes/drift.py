# SPDX-License-Identifier: Apache-2.0
"""Whether what an application has in a cluster is what git says.

Objects are compared by the server's dry run of what a sync would apply, so that fields of others
make no difference. What is known not to have changed is not compared again. What cannot be listed
or compared makes the state unknown, never out of sync.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from pipecd_plugin_kubernetes.apply.concurrency import run_in_order
from pipecd_plugin_kubernetes.apply.known import find_live, list_autoscalers
from pipecd_plugin_kubernetes.apply.outcome import Limits
from pipecd_plugin_kubernetes.apply.replicas import find_scale_targets, has_replicas
from pipecd_plugin_kubernetes.client import Cluster, Object, ObjectRef, UnknownKindError
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.config_hash import add_config_hashes
from pipecd_plugin_kubernetes.desired import (
    IgnoredFields,
    adopt_marks,
    find_ignored_paths,
    is_variant,
    is_variant_service,
)
from pipecd_plugin_kubernetes.differences import (
    DriftChange,
    ObjectDifference,
    drop_fields,
    format_counts,
    format_heading,
    format_nodes,
    format_notes,
    hide_values,
)
from pipecd_plugin_kubernetes.dry_run import DryRunner
from pipecd_plugin_kubernetes.livestate import LiveObject, LiveStates, LiveView
from pipecd_plugin_kubernetes.livestate.kinds import is_excluded
from pipecd_plugin_kubernetes.livestate.records import IGNORE_DRIFT, compute_digest, read_uid
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey, find_map
from pipecd_plugin_kubernetes.metadata import APPLICATION, MANAGED_BY, MANAGER, add_builtin
from pipecd_sdk import SyncState, SyncStatus, TargetError

MOST_SHOWN: Final = 3
"""Changed objects that are shown field by field; of the others only their names."""
MOST_NAMED: Final = 100
"""Objects that are named; of the others only the number."""
MOST_REMEMBERED: Final = 5_000
"""Applications, on one deploy target each, whose comparisons are remembered."""
_WORDS: Final = {
    DriftChange.CHANGE: "changed",
    DriftChange.ADD: "missing in the cluster",
    DriftChange.DELETE: "not in git",
}
_ORDER: Final = (DriftChange.DELETE, DriftChange.ADD, DriftChange.CHANGE)

_REFUSED: Final = "compared without the server's dry run, which was refused"

_Remembered = dict[tuple[str, bytes, bytes], ObjectDifference | None]
"""By the uid, the digest of the object, and that of what git wants; None: they are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftQuestion:
    """One application on one deploy target."""

    application_id: str
    piped_id: str
    target: str
    """The name of the deploy target."""
    commit: str
    stamp: bytes
    """Changes with everything that manifests are made of: commit, files, configuration."""
    options: KubernetesOptions
    ignored: IgnoredFields
    load: Callable[[], Awaitable[Sequence[Manifest]]]
    """Renders the manifests. Raises StageFailedError."""


@dataclass(slots=True, kw_only=True)
class _Memory:
    key: object
    state: SyncState
    compared: _Remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    manifest: Manifest
    ref: ObjectRef


class DriftDetector:
    """Compares what runs with git, and remembers what it has compared."""

    def __init__(self, states: LiveStates, *, limits: Limits | None = None) -> None:
        self._states = states
        self._limits = limits or Limits()
        self._memory: dict[tuple[str, str], _Memory] = {}

    async def detect(self, asked: DriftQuestion, view: LiveView, cluster: Cluster) -> SyncState:
        """Returns whether the objects of an application are as git has them.

        Raises TargetError, or ClusterError, when that cannot be found out.
        """
        if view.problem:
            raise TargetError(f"the cluster cannot be read: {view.problem}")
        place = (asked.application_id, asked.target)
        known = self._memory.get(place)
        if known is not None and known.key == _make_key(asked, view):
            return known.state
        manifests = [each for each in await asked.load() if not _is_ignored(each)]
        await self._states.want(view, {(each.api_version, each.kind) for each in manifests})
        key = _make_key(asked, view)
        compared: _Remembered = {}
        before = known.compared if known is not None else {}
        run = self._begin(asked, view, cluster, before=before, compared=compared)
        state = _make_state(asked, await run.find_differences(manifests))
        self._memory.pop(place, None)
        self._memory[place] = _Memory(key=key, state=state, compared=compared)
        while len(self._memory) > MOST_REMEMBERED:
            del self._memory[next(iter(self._memory))]
        return state

    async def compare_object(
        self, asked: DriftQuestion, view: LiveView, cluster: Cluster, record: LiveObject
    ) -> ObjectDifference | None:
        """Returns how one object differs from git; None when it does not.

        Nothing of it is remembered. Raises TargetError, or ClusterError, when it cannot be told.
        """
        manifests = [each for each in await asked.load() if not _is_ignored(each)]
        run = self._begin(asked, view, cluster, before={}, compared={})
        return await run.find_difference(manifests, record.key)

    def _begin(
        self,
        asked: DriftQuestion,
        view: LiveView,
        cluster: Cluster,
        *,
        before: _Remembered,
        compared: _Remembered,
    ) -> "_Comparison":
        return _Comparison(
            asked=asked,
            view=view,
            cluster=cluster,
            limits=self._limits,
            managed={each.key: each for each in view.managed},
            before=before,
            compared=compared,
        )


def _make_key(asked: DriftQuestion, view: LiveView) -> object:
    """Returns what changes whenever the answer may change."""
    managed = frozenset((each.uid, each.digest) for each in view.managed)
    return asked.stamp, managed, frozenset(view.watch.problems.items())


def _is_ignored(manifest: Manifest) -> bool:
    return manifest.annotations.get(IGNORE_DRIFT) == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """One comparison of all objects of an application."""

    asked: DriftQuestion
    view: LiveView
    cluster: Cluster
    limits: Limits
    managed: Mapping[ResourceKey, LiveObject]
    before: Mapping[tuple[str, bytes, bytes], ObjectDifference | None]
    compared: _Remembered

    async def find_differences(self, manifests: Sequence[Manifest]) -> list[ObjectDifference]:
        """Returns all objects that are not as git has them."""
        wanted, unserved = await self._find_places(self._mark(manifests))
        recalled, left = self._recall(wanted)
        extra = await self._find_extra(wanted)
        return [*unserved, *extra, *recalled, *await self._compare(left)]

    async def find_difference(
        self, manifests: Sequence[Manifest], key: ResourceKey
    ) -> ObjectDifference | None:
        """Returns how the object with a key is not as git has it; None when it is."""
        wanted, _ = await self._find_places(self._mark(manifests))
        mine = [each for each in wanted if _key_of(each.ref) == key]
        if not mine:
            extra = await self._find_extra(wanted)
            return next((each for each in extra if each.key == key), None)
        return next(iter(await self._compare(mine)), None)

    def _mark(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        marked = add_builtin(
            manifests, piped_id=self.asked.piped_id, application_id=self.asked.application_id
        )
        add_config_hashes(marked)
        return marked

    async def _find_places(
        self, manifests: Sequence[Manifest]
    ) -> tuple[list[_Wanted], list[ObjectDifference]]:
        """Returns where objects are, and those of kinds that the cluster does not serve.

        Raises TargetError for a kind whose objects are not all known.
        """
        wanted: list[_Wanted] = []
        unserved: list[ObjectDifference] = []
        informer = self.view.watch.informer
        for manifest in manifests:
            if is_excluded(manifest.api_version, manifest.kind, informer):
                continue
            try:
                ref = await self.cluster.ref_of(manifest.body)
            except UnknownKindError as error:
                if error.is_group_failed:
                    raise TargetError(error.reason()) from error
                notes = [error.reason()]
                unserved.append(
                    ObjectDifference(key=manifest.key, change=DriftChange.ADD, notes=notes)
                )
                continue
            if informer.namespace and ref.namespace != informer.namespace:
                continue  # the piped file says that nothing else is looked at
            if problem := self.view.find_problem(ref.resource.group, ref.resource.kind):
                raise TargetError(f"{ref.resource} cannot be compared: {problem}")
            there = self.managed.get(_key_of(ref))
            if there is None or not there.is_ignored:
                wanted.append(_Wanted(manifest=manifest, ref=ref))
        return wanted, unserved

    async def _find_extra(self, wanted: Sequence[_Wanted]) -> list[ObjectDifference]:
        """Returns what the application has applied and git has not; each is looked at once more.

        Right after a deployment the watch may still have what was just removed.
        """
        keys = {_key_of(each.ref) for each in wanted}
        label = self.asked.options.variant_label
        services = [each.manifest.name for each in wanted if each.manifest.is_service()]
        candidates = [
            record
            for key, record in self.managed.items()
            if key not in keys
            and not record.is_ignored
            and not is_variant(record.labels, variant_key=label.key, primary=label.primary_value)
        ]

        async def look(record: LiveObject) -> ObjectDifference | None:
            ref = ObjectRef(record.resource, record.namespace, record.name)
            live = await self.cluster.get(ref)
            if live is None or not self._is_marked(live):
                return None
            if is_variant_service(live, variant_key=label.key, services=services):
                return None
            return ObjectDifference(key=record.key, change=DriftChange.DELETE)

        found = await run_in_order(candidates, look, most_at_once=self.limits.most_at_once)
        return [each for each in found if each is not None]

    def _is_marked(self, live: Object) -> bool:
        """Returns whether an object says that this application applied it."""
        marks = find_map(live, "metadata", "annotations")
        return (marks.get(MANAGED_BY), marks.get(APPLICATION)) == (
            MANAGER,
            self.asked.application_id,
        )

    def _recall(self, wanted: Sequence[_Wanted]) -> tuple[list[ObjectDifference], list[_Wanted]]:
        """Returns what is known from before, and what has to be compared."""
        found: list[ObjectDifference] = []
        left: list[_Wanted] = []
        for each in wanted:
            record = self.managed.get(_key_of(each.ref))
            key = (record.uid, record.digest, self._digest(each)) if record is not None else None
            if key is None or key not in self.before:
                left.append(each)
                continue
            difference = self.compared[key] = self.before[key]
            if difference is not None:
                found.append(difference)
        return found, left

    async def _compare(self, wanted: Sequence[_Wanted]) -> list[ObjectDifference]:
        if not wanted:
            return []
        there = await find_live(
            self.cluster, [(each.manifest, each.ref) for each in wanted], limits=self.limits
        )
        namespaces = sorted({each.ref.namespace for each in wanted if has_replicas(each.manifest)})
        autoscalers = await list_autoscalers(self.cluster, namespaces) if namespaces else []
        runner = DryRunner(
            cluster=self.cluster,
            autoscaled=find_scale_targets(autoscalers, namespace=self.cluster.namespace),
        )

        async def compare_one(each: _Wanted) -> ObjectDifference | None:
            live = there.get(each.ref) or await self.cluster.get(each.ref)
            if live is None:
                return ObjectDifference(key=_key_of(each.ref), change=DriftChange.ADD)
            return await self._compare_one(each, live, runner)

        found = await run_in_order(wanted, compare_one, most_at_once=self.limits.most_at_once)
        return [each for each in found if each is not None]

    async def _compare_one(
        self, wanted: _Wanted, live: Object, runner: DryRunner
    ) -> ObjectDifference | None:
        key = _key_of(wanted.ref)
        manifest = wanted.manifest
        if self._is_marked(live):
            # One that has lost its marks is not as it should be; otherwise they are no difference.
            variant_key = self.asked.options.variant_label.key
            manifest = adopt_marks(manifest, live, variant_key=variant_key)
        result = await runner.compare(manifest, wanted.ref, live)
        ignored = find_ignored_paths(self.asked.ignored, key, wanted.manifest.key)
        nodes = hide_values(drop_fields(result.nodes, ignored), key, config_maps=True)
        difference = None
        if nodes:
            notes = [f"{_REFUSED}: {result.refusal}"] if result.refusal else []
            difference = ObjectDifference(
                key=key, change=DriftChange.CHANGE, nodes=nodes, notes=notes
            )
        self.compared[(read_uid(live), compute_digest(live), self._digest(wanted))] = difference
        return difference

    def _digest(self, wanted: _Wanted) -> bytes:
        """Returns what changes with everything that a comparison depends on, but for the object."""
        parts: list[object] = [
            wanted.manifest.body,
            find_ignored_paths(self.asked.ignored, _key_of(wanted.ref), wanted.manifest.key),
            self.asked.options.variant_label.key,
        ]
        if has_replicas(wanted.manifest):
            parts += sorted(
                each.digest.hex()
                for each in self.managed.values()
                if each.resource.kind == "HorizontalPodAutoscaler"
            )
        encoded = msgspec.json.encode(parts, order="deterministic")
        return hashlib.blake2b(encoded, digest_size=16).digest()


def _key_of(ref: ObjectRef) -> ResourceKey:
    return ResourceKey(ref.resource.group, ref.resource.kind, ref.namespace, ref.name)


def _make_state(asked: DriftQuestion, differences: Sequence[ObjectDifference]) -> SyncState:
    if not differences:
        return SyncState(status=SyncStatus.SYNCED)
    ordered = sorted(differences, key=lambda each: (_ORDER.index(each.change), str(each.key)))
    short = format_counts(ordered, _WORDS)
    return SyncState(
        status=SyncStatus.OUT_OF_SYNC,
        short_reason=f"{len(ordered)} {'object differs' if len(ordered) == 1 else 'objects differ'}"
        f" from git: {short}",
        reason=format_drift(ordered, commit=asked.commit),
    )


def format_drift(differences: Sequence[ObjectDifference], *, commit: str) -> str:
    """Returns the differences for people: those to delete, to add, to change."""
    lines = [
        f"Difference between git at {commit[:7]} and the cluster:\n\n",
        "--- the cluster (live)\n+++ git\n\n",
    ]
    shown = 0
    for number, difference in enumerate(differences[:MOST_NAMED], start=1):
        lines += [format_heading(number, difference, _WORDS), format_notes(difference)]
        if difference.nodes:
            shown += 1
            lines.append(f"\n{format_nodes(difference.nodes)}" if shown <= MOST_SHOWN else "")
        lines.append("\n")
    if shown > MOST_SHOWN:
        lines.append(
            f"... {shown - MOST_SHOWN} more changed objects are not shown field by field\n"
        )
    if (more := len(differences) - MOST_NAMED) > 0:
        lines.append(f"... and {more} more objects\n")
    return "".join(lines)
