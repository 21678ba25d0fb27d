# SPDX-License-Identifier: Apache-2.0
"""Whether pods are replaced because of what they are configured with: the marks in their template.

The hash of the configuration (`pipecd.dev/config-hash`) is that of all PipeCDs, so that either may
deploy after the other. It does not count `stringData` of Secrets, and workloads that others have
applied do not have it. So a template that is there keeps its marks for as long as the configuration
is the same, which the digest in the workload's own annotations tells. When that changes the hash is
written, and where the hash is the same a second mark, which makes the template another one.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipecd_plugin_kubernetes.client import Object
from pipecd_plugin_kubernetes.manifest import Manifest, find_map, open_map
from pipecd_plugin_kubernetes.metadata import CONFIG_DIGEST, CONFIG_HASH, RESTARTED_FOR

_ANNOTATIONS = ("spec", "template", "metadata", "annotations")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMark:
    """What stands in a template of pods; an empty text is what does not stand there."""

    config_hash: str = ""
    restarted_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMarks:
    """What a stage knows about the marks of workloads, by the text of their normalized keys."""

    unchanged: Collection[str] = ()
    """Workloads without a digest, whose configuration in the cluster is what git says."""
    is_rollback: bool = False
    """Then a workload without a digest is one that the deployment has not come to."""
    restored: Mapping[str, PodMark] = field(default_factory=dict)
    """Marks that workloads had before the deployment: a rollback writes them again."""
    keep: Callable[[str, PodMark], Awaitable[None]] | None = None
    """Notes a mark before it is replaced, where the earlier commit alone could not tell it."""

    async def settle(self, manifest: Manifest, body: Object, live: Object) -> None:
        """Writes the marks into a body that is about to be applied over an object, in place."""
        key = str(manifest.key.normalize())
        if key in self.restored:
            write_mark(body, self.restored[key])
            return
        before = read_mark(live)
        is_unchanged = self.is_rollback or key in self.unchanged
        chosen = choose_mark(body, live, is_unchanged=is_unchanged)
        is_lost = before.restarted_for or chosen.restarted_for or not before.config_hash
        if self.keep is not None and chosen != before and is_lost:
            await self.keep(key, before)
        write_mark(body, chosen)


def choose_mark(body: Mapping[str, Any], live: Mapping[str, Any], *, is_unchanged: bool) -> PodMark:
    """Returns what the template of pods has to have: what is there, or else what replaces pods.

    `is_unchanged` counts where the live object has no digest. Pure.
    """
    wanted, there = read_mark(body), read_mark(live)
    digest, known = read_digest(body), read_digest(live)
    if not digest:
        return PodMark()  # its pods use nothing of git
    if known:
        is_same = known == digest
    else:
        has_texts = digest != wanted.config_hash
        is_same = is_unchanged or (there.config_hash == wanted.config_hash and not has_texts)
    if is_same and there.config_hash in {"", wanted.config_hash}:
        return there
    is_replaced = there.config_hash != wanted.config_hash
    return PodMark(
        config_hash=wanted.config_hash, restarted_for="" if is_replaced or is_same else digest
    )


def read_digest(body: Mapping[str, Any]) -> str:
    """Returns the digest of a workload; empty when it has none."""
    return _read_text(find_map(body, "metadata", "annotations"), CONFIG_DIGEST)


def read_mark(body: Mapping[str, Any]) -> PodMark:
    """Returns the marks in a template of pods."""
    annotations = find_map(body, *_ANNOTATIONS)
    return PodMark(
        config_hash=_read_text(annotations, CONFIG_HASH),
        restarted_for=_read_text(annotations, RESTARTED_FOR),
    )


def write_mark(body: Object, mark: PodMark) -> None:
    """Writes marks into the template of pods, in place; one that has to go is taken out."""
    for name, value in ((CONFIG_HASH, mark.config_hash), (RESTARTED_FOR, mark.restarted_for)):
        if value:
            open_map(body, *_ANNOTATIONS)[name] = value
        else:
            find_map(body, *_ANNOTATIONS).pop(name, None)


def adopt_digest(body: Object, live: Mapping[str, Any]) -> None:
    """Gives a body the digest of the live object, in place: no difference is made by it."""
    if known := read_digest(live):
        open_map(body, "metadata", "annotations")[CONFIG_DIGEST] = known
    else:
        find_map(body, "metadata", "annotations").pop(CONFIG_DIGEST, None)


def _read_text(annotations: Mapping[str, Any], name: str) -> str:
    found = annotations.get(name)
    return found if isinstance(found, str) else ""
