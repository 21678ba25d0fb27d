# SPDX-License-Identifier: Apache-2.0
"""The common part of plugins whose applications are files that describe what runs on a platform."""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Final, Generic, TypeVar

from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    Drift,
    InvalidFileError,
    LiveContext,
    LiveState,
    PlanContext,
    PlanPreview,
    Preview,
    PreviewContext,
    ResourceDetails,
    Source,
    Strategy,
    Version,
    replace,
)
from pipecd_sdk.config import OptionFaultsError
from pipecd_sdk.kit.opened_files import has_secrets, list_opened_files
from pipecd_sdk.kit.rereads import MOST_KEPT, make_room

__all__ = ["ManifestPlugin"]

_UNREADABLE: Final = (InvalidFileError, OptionFaultsError)
"""What is raised when the files of a commit, or its options, cannot be used."""

M = TypeVar("M")


class ManifestPlugin(DeploymentPlugin, LiveState, Drift, PlanPreview, ResourceDetails, Generic[M]):
    """A plugin that plans and previews by the manifests of two commits, which are of type `M`.

    Example:
        class Shop(ManifestPlugin[ShopManifest]):
            def read_manifest(self, source: Source, target: DeployTarget | None) -> ShopManifest:
                return parse_shop(source)
    """

    @abstractmethod
    def read_manifest(self, source: Source, target: DeployTarget | None) -> M:
        """Returns what a commit describes. Raises InvalidFileError. It is called in a thread.

        A deploy target is given where one is meant: a manifest may have to fit it.
        """

    @abstractmethod
    def find_versions(self, manifest: M, targets: Sequence[DeployTarget]) -> Sequence[Version]:
        """Returns the versions of what a manifest deploys."""

    @abstractmethod
    def decide_strategy(self, running: M | None, target: M) -> Strategy:
        """Returns the strategy of a change; without a running commit, of a first deployment."""

    @abstractmethod
    def preview_change(self, running: M | None, target: M) -> Preview:
        """Returns what a commit would change. Nobody is asked."""

    async def load(self, source: Source, target: DeployTarget | None = None) -> M:
        """Returns what a commit describes. Raises InvalidFileError or OptionFaultsError."""
        return await asyncio.to_thread(self.read_manifest, source, target)

    async def try_load(
        self, source: Source | None, target: DeployTarget | None = None
    ) -> tuple[M | None, str]:
        """Returns what a commit describes, or None and why it cannot be read.

        For the commit that is not deployed: what is wrong there must not stop the one that is.
        """
        try:
            return (await self.load(source, target) if source is not None else None), ""
        except _UNREADABLE as error:
            return None, error.with_hint()

    async def load_deployed(self, ctx: LiveContext, target: DeployTarget) -> M:
        """Returns what the deployed commit describes, the same object until that is another one.

        piped asks every minute, and what a commit describes does not change. Where the application
        has secrets it is read each time, and not kept. Raises InvalidFileError.
        """
        place, key = (ctx.application_id, target.name), _find_identity(ctx.source)
        kept = self._deployed.get(place)
        if kept is not None and key is not None and kept[0] == key:
            return kept[1]
        manifest = await self.load(ctx.source, target)
        if key is not None and not (has_secrets(ctx.source) or list_opened_files(ctx.source)):
            if place not in self._deployed:
                make_room(self._deployed, MOST_KEPT)
            self._deployed[place] = (key, manifest)
        return manifest

    @cached_property
    def _deployed(self) -> dict[tuple[str, str], tuple[Hashable, M]]:
        return {}

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        return self.find_versions(await self.load(ctx.source.target), ctx.targets)

    async def strategy(self, ctx: PlanContext) -> Strategy:
        target = await self.load(ctx.source.target)
        running, fault = await self.try_load(ctx.source.running)
        if fault:
            return Strategy(summary=f"Pipeline sync, the running commit cannot be read: {fault}")
        return self.decide_strategy(running, target)

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        running, fault = await self.try_load(ctx.source.running, target)
        seen = self.preview_change(running, await self.load(ctx.source.target, target))
        if not fault:
            return seen
        summary = f"all is shown as new, the running commit cannot be read: {fault}"
        return replace(seen, summary=summary)


def _find_identity(source: Source) -> Hashable | None:
    """Returns what names the files of an application for ever; None where that is not known.

    The commit, and the folder within the repository: worktrees are elsewhere each time.
    """
    shared = source.shared_config_directory
    if not shared or not source.commit_hash:
        return None
    folder = os.path.relpath(source.application_directory, os.path.dirname(shared))  # noqa: PTH120 - both of strings, hot
    return source.commit_hash, folder, source.config_filename, source.config
