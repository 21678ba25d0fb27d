# SPDX-License-Identifier: Apache-2.0
"""The plugin `terraform`: stages, live state, drift, preview, details, each by its own module."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar

from pipecd_plugin_terraform.config import (
    ApplyConfig,
    PlanConfig,
    TerraformOptions,
    TerraformPluginConfig,
    TerraformTarget,
)
from pipecd_plugin_terraform.details import describe
from pipecd_plugin_terraform.livestate import StateView
from pipecd_plugin_terraform.observing import Observer, sweep_caches, to_sync_state
from pipecd_plugin_terraform.program import TerraformPrograms
from pipecd_plugin_terraform.stages import TerraformStage
from pipecd_plugin_terraform.versions import find_versions
from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    Details,
    DetailsContext,
    Drift,
    LiveContext,
    LiveSnapshot,
    LiveState,
    Outcome,
    PlanContext,
    PlanPreview,
    Preview,
    PreviewContext,
    Resource,
    ResourceDetails,
    StageContext,
    SyncState,
    SyncStatus,
    TargetConfig,
    TargetError,
    Version,
    serve,
    stage,
)
from pipecd_sdk.repository import Folder
from pipecd_sdk.scripts.environment import locate_scripts
from pipecd_sdk.scripts.records import KEEP_RECORDS_SECONDS, sweep


class TerraformPlugin(DeploymentPlugin, LiveState, Drift, PlanPreview, ResourceDetails):
    """Plans and applies with Terraform or OpenTofu."""

    takes_one_target: ClassVar[bool] = True
    config: TerraformPluginConfig
    target_config: ClassVar[type[TargetConfig]] = TerraformTarget
    application_config = TerraformOptions

    def __init__(self) -> None:
        self._programs = TerraformPrograms()
        self.observer = Observer(self._programs)

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        folder = Folder.open(ctx.source.target)
        return await asyncio.to_thread(find_versions, folder)

    @stage("TERRAFORM_PLAN", desc="Plan, and save the plan")
    async def plan_changes(self, ctx: StageContext, config: PlanConfig) -> Outcome | None:
        return await self._run(ctx).plan(exits=config.exit_on_no_changes)

    @stage(
        "TERRAFORM_APPLY",
        quick_sync=True,
        finishes_on_stop=True,
        desc="Apply the saved plan; without one, plan first",
    )
    async def apply(self, ctx: StageContext, _config: ApplyConfig) -> None:
        with self._forgetting_state(ctx):
            await self._run(ctx).apply(uses_saved=True)

    @stage("TERRAFORM_SYNC", finishes_on_stop=True, desc="Plan and apply")
    async def sync(self, ctx: StageContext, _config: ApplyConfig) -> None:
        with self._forgetting_state(ctx):
            await self._run(ctx).apply(uses_saved=False)

    @stage(
        "TERRAFORM_ROLLBACK",
        rollback=True,
        finishes_on_stop=True,
        desc="Apply the configuration that ran before",
    )
    async def undo(self, ctx: StageContext) -> None:
        with self._forgetting_state(ctx):
            await self._run(ctx).roll_back()

    def _run(self, ctx: StageContext) -> TerraformStage:
        return TerraformStage(ctx=ctx, config=self.config, programs=self._programs)

    @contextmanager
    def _forgetting_state(self, ctx: StageContext) -> Iterator[None]:
        """Lets the state be read anew that the block changes."""
        try:
            yield
        finally:
            self.observer.forget(ctx.deployment.application_id)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        view = await self.observer.look(ctx, target, self.config)
        return LiveSnapshot(resources=view.resources, data=view)

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        options: TerraformTarget = target.config
        if not options.drift_detection_enabled:
            return SyncState(
                status=SyncStatus.UNKNOWN,
                short_reason="drift detection is off for this deploy target",
            )
        view = live.data
        if not isinstance(view, StateView):
            raise TargetError("what is in the state is not known")
        changes = await self.observer.compare(ctx, target, self.config, view)
        return to_sync_state(changes, ctx.source.commit_hash)

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        return await self.observer.preview(ctx, target, self.config)

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        view = await self.observer.look(ctx, target, self.config, is_fresh=True)
        options: TerraformTarget = target.config
        changes, why_not = None, "drift detection is off for this deploy target"
        if options.drift_detection_enabled:
            try:
                changes = await self.observer.compare(ctx, target, self.config, view)
            except TargetError as error:
                why_not = str(error)
        return describe(view, resource, changes, why_not=why_not)


def main() -> None:
    """Runs the executable `pipecd-plugin-terraform`."""
    with suppress(OSError):  # an unreadable folder is reported when a stage needs it
        sweep(locate_scripts(), older_than=KEEP_RECORDS_SECONDS)
    with suppress(OSError):
        sweep_caches()
    serve(TerraformPlugin())


if __name__ == "__main__":
    main()
