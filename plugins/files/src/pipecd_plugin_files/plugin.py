# SPDX-License-Identifier: Apache-2.0
"""The plugin `files`: stages, live state, drift, preview, details, each done by its own module."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pipecd_plugin_files import details, livestate, plan, planpreview
from pipecd_plugin_files.compare import compare
from pipecd_plugin_files.config import (
    CanaryConfig,
    FilesOptions,
    FilesPluginConfig,
    FilesTarget,
    RolloutConfig,
)
from pipecd_plugin_files.entry import Tree
from pipecd_plugin_files.provider.site import ReleaseSite, SiteError
from pipecd_plugin_files.provider.tree import Digests, TreeError, read_desired
from pipecd_plugin_files.source import SourceFolder, folder_of
from pipecd_plugin_files.stages.order import Order, relative
from pipecd_plugin_files.stages.rollback import roll_back
from pipecd_plugin_files.stages.rollout import roll_out
from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    Details,
    DetailsContext,
    Drift,
    LiveContext,
    LiveSnapshot,
    LiveState,
    PlanContext,
    PlanPreview,
    Preview,
    PreviewContext,
    Resource,
    ResourceDetails,
    StageContext,
    StageFailedError,
    StageLog,
    Strategy,
    SyncState,
    TargetConfig,
    Version,
    run_on_targets,
    serve,
    stage,
)

T = TypeVar("T")


class Files(DeploymentPlugin, LiveState, Drift, PlanPreview, ResourceDetails):
    """Deploys a folder of the repository to directories."""

    config: FilesPluginConfig
    target_config: ClassVar[type[TargetConfig]] = FilesTarget
    application_config = FilesOptions

    def __init__(self) -> None:
        self._digests = Digests()

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        folder = folder_of(ctx.source.target)
        file = folder.options.version_file
        text = (
            await _run_in_thread(lambda _: livestate.content(folder.path, file)) if file else None
        )
        return [
            Version(
                name=ctx.deployment.application_name,
                version=plan.version(folder.options, ctx.deployment.commit.hash, text),
                url=ctx.deployment.commit.url,
            )
        ]

    async def strategy(self, ctx: PlanContext) -> Strategy:
        target = folder_of(ctx.source.target)
        there: Tree = {}
        if ctx.source.running is not None:
            there = await self._read_desired(folder_of(ctx.source.running))
        found = compare(there, await self._read_desired(target))
        return plan.strategy(target.options, [each.path for each in found])

    @stage("FILES_SYNC", quick_sync=True, desc="Bring all directories to the commit")
    async def sync(self, ctx: StageContext, _config: RolloutConfig) -> None:
        await self._roll_out(ctx, ctx.targets)

    @stage("FILES_CANARY_ROLLOUT", desc="Bring some directories to the commit")
    async def roll_out_canary(self, ctx: StageContext, config: CanaryConfig) -> None:
        targets = plan.choose_targets(config, ctx.targets)
        names = ", ".join(target.name for target in targets)
        ctx.log.info("%d of %d deploy targets: %s", len(targets), len(ctx.targets), names)
        await self._roll_out(ctx, targets)

    @stage("FILES_PRIMARY_ROLLOUT", desc="Bring the other directories to the commit")
    async def roll_out_primary(self, ctx: StageContext, _config: RolloutConfig) -> None:
        await self._roll_out(ctx, ctx.targets)

    @stage("FILES_ROLLBACK", rollback=True, desc="Bring all directories back")
    async def undo(self, ctx: StageContext) -> None:
        into = folder_of(ctx.source.target).options.into
        running = folder_of(ctx.source.running) if ctx.source.running else None

        async def undo_one(target: DeployTarget, log: StageLog) -> None:
            site = self._site(target, into)
            done = await _run_in_thread(
                lambda stop: roll_back(self._order(ctx, site, stop), running)
            )
            log.success("%s %s", site.root, done)

        await run_on_targets(ctx, undo_one)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        site = self._site(target, ctx.source.options.into)
        seen = await _run_in_thread(lambda _: livestate.look(site, self._digests))
        return livestate.live(target.name, seen)

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        folder = folder_of(ctx.source)
        return await _run_in_thread(lambda _: livestate.drift(live.data, folder, self._digests))

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        folder = folder_of(ctx.source)
        site = self._site(target, folder.options.into)

        def work(_: threading.Event) -> Details:
            seen = livestate.look(site, self._digests)
            return details.describe(
                target.name, resource, ctx.application_id, seen, folder, self._digests
            )

        return await _run_in_thread(work)

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        folder = folder_of(ctx.source.target)
        site = self._site(target, folder.options.into)

        def work(_: threading.Event) -> Preview:
            return planpreview.preview(livestate.look(site, self._digests), folder, self._digests)

        return await _run_in_thread(work)

    async def _roll_out(self, ctx: StageContext, targets: Sequence[DeployTarget]) -> None:
        folder = folder_of(ctx.source.target)

        async def roll_out_one(target: DeployTarget, log: StageLog) -> None:
            site = self._site(target, folder.options.into)
            release, is_new = await _run_in_thread(
                lambda stop: roll_out(self._order(ctx, site, stop), folder)
            )
            if is_new:
                log.success(
                    "%s has release %s, %d files", site.root, release.id, len(release.files)
                )
            else:
                log.info("%s has release %s already", site.root, release.id)

        await run_on_targets(ctx, roll_out_one, targets=targets)

    def _order(self, ctx: StageContext, site: ReleaseSite, stop: threading.Event) -> Order:
        return Order(
            site=site,
            deployment=ctx.deployment,
            keep=self.config.keep,
            digests=self._digests,
            stop=stop,
            now=ctx.clock.now().timestamp(),
        )

    def _site(self, target: DeployTarget, into: str) -> ReleaseSite:
        config: Any = target.config
        return ReleaseSite(relative(Path(config.path), into), flush=self.config.flush)

    async def _read_desired(self, folder: SourceFolder) -> Tree:
        return await _run_in_thread(
            lambda _: read_desired(folder.path, folder.excluded, self._digests)
        )


async def _run_in_thread(work: Callable[[threading.Event], T]) -> T:
    """Runs blocking work in a thread. A cancellation sets its stop event and waits for its end.

    Raises StageFailedError when the work raises SiteError, TreeError or OSError.
    """
    stop = threading.Event()
    doing = asyncio.get_running_loop().run_in_executor(None, work, stop)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([doing])
        doing.exception()  # it was cancelled: its result and error are not needed
        raise
    except (SiteError, TreeError) as error:
        raise StageFailedError(str(error), hint=getattr(error, "hint", "")) from error
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        raise StageFailedError(f"{error.strerror or error}{where}") from error


def main() -> None:
    """Runs the executable `pipecd-plugin-files`."""
    serve(Files())


if __name__ == "__main__":
    main()
