# SPDX-License-Identifier: Apache-2.0
"""What a stage finds out about the configuration of pods before it changes it, and keeps.

It is kept in the deployment's metadata: a stage that is continued after a kill must not take what
it has applied itself for what was there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pipecd_plugin_kubernetes.apply.body import prepare_body
from pipecd_plugin_kubernetes.apply.pod_marks import PodMark, PodMarks, read_digest, read_mark
from pipecd_plugin_kubernetes.client import Cluster
from pipecd_plugin_kubernetes.config_hash import find_configuration
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.stages.ledger import get_live
from pipecd_sdk import Metadata, StageFailedError

_VALUES: Final = ("data", "binaryData")
_MARKS: Final = "pod-marks"
_SAME: Final = "configuration"


class ConfigurationNotes:
    """The notes about pods' configuration on one deploy target in one deployment."""

    def __init__(self, metadata: Metadata, target: str, cluster: Cluster) -> None:
        self._metadata = metadata
        self._target = target
        self._cluster = cluster
        self._keeping = asyncio.Lock()

    async def look(self, manifests: Sequence[Manifest], *, is_first: bool) -> PodMarks:
        """Returns what is known before manifests are applied.

        `is_first` says that no earlier deployment is known: whoever applied a workload that is
        there may not have written a hash.
        """
        asked = [each for each in manifests if _has_to_be_looked_at(each, is_first=is_first)]
        unchanged = await self._find_unchanged(asked, manifests) if asked else []
        return PodMarks(unchanged=frozenset(unchanged), keep=self._keep)

    async def restore(self) -> PodMarks:
        """Returns the marks that the deployment has replaced."""
        noted = await self._read(_MARKS)
        marks = {
            key: PodMark(config_hash=mark.get("hash", ""), restarted_for=mark.get("for", ""))
            for key, mark in noted.items()
        }
        return PodMarks(is_rollback=True, restored=marks)

    async def _find_unchanged(
        self, asked: Sequence[Manifest], manifests: Sequence[Manifest]
    ) -> list[str]:
        noted = await self._read(_SAME)
        known = len(noted)
        for workload in asked:
            key = str(workload.key.normalize())
            if key in noted:
                continue
            live = await get_live(self._cluster, workload)
            if live is not None and not read_digest(live):
                noted[key] = await self._is_same(find_configuration(workload, manifests))
        if len(noted) > known:
            await self._write(_SAME, noted)
        return [key for key, is_same in noted.items() if is_same is True]

    async def _is_same(self, used: Sequence[Manifest]) -> bool:
        """Returns whether ConfigMaps and Secrets in the cluster have what the manifests say."""
        for manifest in used:
            live = await get_live(self._cluster, manifest)
            if live is None:
                return False
            wanted = prepare_body(manifest, await self._cluster.ref_of(manifest.body))
            for part in _VALUES:
                there, given = find_map(live, part), find_map(wanted, part)
                # Removed texts of `stringData` stay where they were applied by kubectl.
                is_partial = manifest.is_secret() and bool(manifest.body.get("stringData"))
                if not (given.items() <= there.items() if is_partial else given == there):
                    return False
        return True

    async def _keep(self, key: str, mark: PodMark) -> None:
        async with self._keeping:
            noted = await self._read(_MARKS)
            if key not in noted:
                noted[key] = {"hash": mark.config_hash, "for": mark.restarted_for}
                await self._write(_MARKS, noted)

    async def _read(self, what: str) -> dict[str, Any]:
        text = await self._metadata.get(f"{what}/{self._target}")
        if text is None:
            return {}
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            raise StageFailedError(
                f"the deployment's metadata {what}/{self._target} is not what was written",
                hint="roll back by deploying the earlier commit",
            ) from None

    async def _write(self, what: str, noted: Mapping[str, Any]) -> None:
        text = msgspec.json.encode(noted, order="deterministic").decode()
        await self._metadata.put(f"{what}/{self._target}", text)


def _has_to_be_looked_at(manifest: Manifest, *, is_first: bool) -> bool:
    """Returns whether the hash alone does not tell if the configuration of pods is the same."""
    digest = read_digest(manifest.body)
    return bool(digest) and (is_first or digest != read_mark(manifest.body).config_hash)
