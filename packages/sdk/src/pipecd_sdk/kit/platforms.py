# SPDX-License-Identifier: Apache-2.0
"""The common part of plugins whose applications are files that describe what runs on a platform."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    Drift,
    InvalidFileError,
    LiveState,
    PlanContext,
    PlanPreview,
    Preview,
    PreviewContext,
    ResourceDetails,
    Source,
    Strategy,
    Version,
)

__all__ = ["ManifestPlugin"]

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
        """Returns what a commit describes. Raises InvalidFileError."""
        return await asyncio.to_thread(self.read_manifest, source, target)

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        return self.find_versions(await self.load(ctx.source.target), ctx.targets)

    async def strategy(self, ctx: PlanContext) -> Strategy:
        target = await self.load(ctx.source.target)
        try:
            running = await self.load(ctx.source.running) if ctx.source.running else None
        except InvalidFileError as error:
            reason = f"the running commit cannot be read: {error.reason()}"
            return Strategy(summary=f"Pipeline sync, {reason}")
        return self.decide_strategy(running, target)

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        running = ctx.source.running
        return self.preview_change(
            await self.load(running, target) if running is not None else None,
            await self.load(ctx.source.target, target),
        )
