# SPDX-License-Identifier: Apache-2.0
"""The preview of one application: how it would be deployed, and what its plugins would change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pipecd_model.config import PluginConfig
from pipecd_model.errors import PipecdError, PluginError
from pipecd_piped.git import Repository
from pipecd_piped.plan.planner import Planner
from pipecd_piped.plan.protocols import PLUGIN, CommitSources
from pipecd_piped.plan.providers import add_targets
from pipecd_piped.plan.sources import open_both
from pipecd_piped.trigger.deployment import DeploymentRequest, build_deployment
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.model.planpreview_pb2 import (
    ApplicationPlanPreviewResult,
    PluginPlanPreviewResult,
)
from pipecd_wire.plugin.planpreviewapi.api_pb2 import (
    GetPlanPreviewRequest,
    GetPlanPreviewResponse,
)

ANSWER_SECONDS: Final = 120.0
"""The deadline of a plugin's preview in seconds."""

COMMANDER: Final = "pipectl"
"""The commander of a preview's deployment: rules about commit messages do not apply to a merge
commit that has no author."""


class PreviewPlugin(Protocol):
    """A plugin that may return plan previews."""

    name: str

    async def get_plan_preview(
        self, request: GetPlanPreviewRequest, /, *, deadline: float
    ) -> GetPlanPreviewResponse | None:
        """Returns the plan preview; None from a plugin that does not implement it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    """What a deployment would run and change."""

    stages: Sequence[PipelineStage]
    result: ApplicationPlanPreviewResult
    """With strategy, plugins, their plans and errors alone."""


class Previewer:
    """Builds the preview of an application from the planner and the plugins."""

    def __init__(
        self,
        *,
        planner: Planner,
        plugins: Mapping[str, PreviewPlugin],
        configs: Iterable[PluginConfig],
        sources: CommitSources,
        mask: Callable[[str], str] = str,
        clock: Callable[[], float],
    ) -> None:
        """`mask` replaces known secrets in the message of an error."""
        self._planner = planner
        self._plugins = plugins
        self._configs = tuple(configs)
        self._sources = sources
        self._mask = mask
        self._clock = clock

    def blank(
        self, application: Application, wanted: Command.BuildPlanPreview
    ) -> ApplicationPlanPreviewResult:
        """Returns the result of an application without a plan or an error yet."""
        return ApplicationPlanPreviewResult(
            application_id=application.id,
            application_name=application.name,
            application_directory=application.git_path.path,
            application_kind=application.kind,
            piped_id=application.piped_id,
            project_id=application.project_id,
            labels=application.labels,
            head_branch=wanted.head_branch,
            head_commit=wanted.head_commit,
            created_at=max(1, int(self._clock())),
        )

    async def preview(
        self,
        merge: DeploymentRequest,
        repository: Repository,
        running: ApplicationDeploymentReference | None,
        wanted: Command.BuildPlanPreview,
    ) -> ApplicationPlanPreviewResult:
        """Returns what deploying the merge would change; a failure becomes the result's error.

        The deployment is built as the trigger would build it, but never created.
        """
        planned = await self.plan_change(merge, repository, running)
        result = self.blank(merge.application, wanted)
        result.MergeFrom(planned.result)
        return result

    async def plan_change(
        self,
        wanted: DeploymentRequest,
        repository: Repository,
        running: ApplicationDeploymentReference | None,
    ) -> PlannedChange:
        """Returns what a deployment would run and change, without saying of what."""
        result = ApplicationPlanPreviewResult()
        stages: Sequence[PipelineStage] = ()
        made = build_deployment(wanted, repository, now=max(1, int(self._clock())))
        made.trigger.commander = COMMANDER
        deployment = add_targets(made, self._configs)
        try:
            plan = await self._planner.plan(deployment, running)
            stages = plan.stages
            result.sync_strategy = plan.strategy
            names = {stage.metadata[PLUGIN] for stage in plan.stages}
            result.plugin_names.extend(sorted(names))
            await self._ask(deployment, running, sorted(names), result)
        except PipecdError as error:
            result.error = self._mask(error.with_hint())
        return PlannedChange(stages=stages, result=result)

    async def compare(
        self, made: Deployment, running: ApplicationDeploymentReference | None
    ) -> ApplicationPlanPreviewResult:
        """Returns what the plugins of a deployment say that it changes against what ran before.

        A failure becomes the result's error.
        """
        result = ApplicationPlanPreviewResult()
        deployment = add_targets(made, self._configs)
        names = sorted(set(deployment.deploy_targets_by_plugin) & set(self._plugins))
        missing = sorted(set(deployment.deploy_targets_by_plugin) - set(names))
        try:
            await self._ask(deployment, running, names, result)
        except PipecdError as error:
            result.error = self._mask(error.with_hint())
        gone = [f"this piped has no plugin {name!r} any more" for name in missing]
        result.error = "\n".join(filter(None, [result.error, *gone]))
        return result

    async def _ask(
        self,
        deployment: Deployment,
        running: ApplicationDeploymentReference | None,
        names: list[str],
        result: ApplicationPlanPreviewResult,
    ) -> None:
        asked = [name for name in names if deployment.deploy_targets_by_plugin[name].deploy_targets]
        if not asked:
            return
        failures = []
        unchanged = []
        async with open_both(self._sources, deployment, running) as (target, before):
            request = GetPlanPreviewRequest(
                piped_id=deployment.piped_id,
                application_id=deployment.application_id,
                application_name=deployment.application_name,
                target_deployment_source=target,
            )
            if before is not None:
                request.running_deployment_source.CopyFrom(before)
            for name in asked:
                del request.deploy_targets[:]
                request.deploy_targets.extend(
                    deployment.deploy_targets_by_plugin[name].deploy_targets
                )
                try:
                    answer = await self._plugins[name].get_plan_preview(
                        request, deadline=ANSWER_SECONDS
                    )
                except PluginError as error:
                    failures.append(f"[{name}] {error}")
                    continue
                for each in answer.results if answer is not None else ():
                    unchanged.append(each.no_change)
                    result.plugin_plan_results.append(
                        PluginPlanPreviewResult(
                            plugin_name=name,
                            deploy_target=each.deploy_target,
                            plan_summary=each.summary.encode(),
                            plan_details=each.details,
                            diff_language=each.diff_language,
                        )
                    )
        result.no_change = bool(unchanged) and all(unchanged) and not failures
        result.error = "\n".join(failures)
