# SPDX-License-Identifier: Apache-2.0
"""What a deploy target was like before a deployment touched it: what a rollback cannot render.

Most objects are restored from the manifests of the commit that ran before. That does not tell
which objects the deployment has made, nor how traffic was routed. Both are noted, in the
deployment's metadata, before the first change: a stage that is killed leaves the note behind, and
when it runs again it adds to the note and never replaces it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from pipecd_plugin_kubernetes.apply.concurrency import run_in_order
from pipecd_plugin_kubernetes.client import Cluster, Object, UnknownKindError
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey, find_map
from pipecd_plugin_kubernetes.metadata import COMMIT_HASH
from pipecd_sdk import Metadata, StageFailedError

_AT_ONCE: Final = 8


@dataclass(slots=True, kw_only=True)
class LedgerNotes:
    """What was noted about one deploy target."""

    made: list[Manifest] = field(default_factory=list)
    """Objects that were not there: apiVersion, kind, namespace and name."""
    kept: list[Manifest] = field(default_factory=list)
    """Objects that were there, and that the commit which ran does not have."""
    routing: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By key: `spec` and `commit` of an object that routes traffic."""
    exists: bool = False
    """Whether anything was noted: without it no stage of the deployment has changed anything."""

    def find_routing(self, manifest: Manifest) -> Mapping[str, Any] | None:
        """Returns how an object routed traffic, None when the deployment has not touched it."""
        return self.routing.get(str(manifest.key))

    def has(self, key: ResourceKey) -> bool:
        """Returns whether an object was noted."""
        return any(each.key == key for each in (*self.made, *self.kept))

    def to_text(self) -> str:
        """Returns the notes as they are stored."""
        return json.dumps(
            {
                "made": [each.body for each in self.made],
                "kept": [each.body for each in self.kept],
                "routing": self.routing,
            },
            separators=(",", ":"),
            ensure_ascii=False,
        )


def parse_notes(text: str | None) -> LedgerNotes:
    """Reads stored notes. Raises StageFailedError when they are none."""
    if text is None:
        return LedgerNotes()
    try:
        raw = json.loads(text)
        return LedgerNotes(
            made=[Manifest(body) for body in raw["made"]],
            kept=[Manifest(body) for body in raw["kept"]],
            routing=dict(raw["routing"]),
            exists=True,
        )
    except (ValueError, KeyError, TypeError):
        raise StageFailedError(
            "the deployment's metadata does not tell what was there before",
            hint="roll back by deploying the earlier commit",
        ) from None


class Ledger:
    """The notes about one deploy target in one deployment."""

    def __init__(self, metadata: Metadata, target: str, cluster: Cluster) -> None:
        self._metadata = metadata
        self._key = f"before/{target}"
        self._cluster = cluster

    async def read(self) -> LedgerNotes:
        """Returns what was noted so far."""
        return parse_notes(await self._metadata.get(self._key))

    async def note(
        self,
        manifests: Sequence[Manifest],
        *,
        rendered: Iterable[ResourceKey],
        routing: Sequence[Manifest] = (),
    ) -> None:
        """Notes what is there now of the manifests that are about to be applied.

        `rendered` are the objects of the commit that runs: they can be restored without a note.
        `routing` are those of the manifests that route traffic.
        """
        notes = await self.read()
        known = {key.normalize() for key in rendered}
        new = [
            manifest
            for manifest in manifests
            if manifest.key.normalize() not in known and not notes.has(manifest.key)
        ]
        routers = [each for each in routing if notes.find_routing(each) is None]
        if not new and not routers and notes.exists:
            return
        for manifest, live in zip(new, await self._get_all(new), strict=True):
            (notes.made if live is None else notes.kept).append(_name(manifest))
        for manifest, live in zip(routers, await self._get_all(routers), strict=True):
            notes.routing[str(manifest.key)] = {
                "spec": (live or {}).get("spec"),
                "commit": find_map(live, "metadata", "labels").get(COMMIT_HASH),
            }
        await self._metadata.put(self._key, notes.to_text())

    async def _get_all(self, manifests: Sequence[Manifest]) -> list[Object | None]:
        return await run_in_order(
            manifests, partial(get_live, self._cluster), most_at_once=_AT_ONCE
        )


async def get_live(cluster: Cluster, manifest: Manifest) -> Object | None:
    """Returns the object of a manifest; None when there is none, or its kind is not served."""
    try:
        ref = await cluster.ref_of(manifest.body)
    except UnknownKindError as error:
        if error.is_group_failed:
            raise
        return None
    return await cluster.get(ref)


def _name(manifest: Manifest) -> Manifest:
    """Returns only what finds an object again: of a Secret nothing else may leave the cluster."""
    metadata = {"name": manifest.name}
    if manifest.namespace:
        metadata["namespace"] = manifest.namespace
    body = {"apiVersion": manifest.api_version, "kind": manifest.kind, "metadata": metadata}
    return Manifest(cast(dict[str, Any], body))
