# SPDX-License-Identifier: Apache-2.0
"""The preview of one application: how it would be deployed, and what its plugins would change."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Final, Protocol

from pipecd_model.config import PluginConfig
from pipecd_model.errors import PipecdError, PluginError
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.common_pb2 import AUTO
from pipecd_wire.model.deployment_pb2 import Commit as CommitMessage
from pipecd_wire.model.deployment_pb2 import Deployment, DeploymentTrigger
from pipecd_wire.model.planpreview_pb2 import (
    ApplicationPlanPreviewResult,
    PluginPlanPreviewResult,
)
from pipecd_wire.plugin.planpreviewapi.api_pb2 import (
    GetPlanPreviewRequest,
    GetPlanPreviewResponse,
)
from piped.git import Commit
from piped.plan.planner import Planner
from piped.plan.providers import with_targets
from piped.plan.roles import PLUGIN, Sources
from piped.plan.sources import enter_running, open_target
from piped.sentence import sentence

LIMIT: Final = 120.0
"""Seconds that a plugin has for its preview."""

COMMANDER: Final = "pipectl"
"""Who seems to ask: rules about commit messages do not apply to a merge that nobody wrote."""


class PreviewPlugin(Protocol):
    """A plugin, as it is asked what would change."""

    name: str

    async def get_plan_preview(
        self, request: GetPlanPreviewRequest, /, *, deadline: float
    ) -> GetPlanPreviewResponse | None:
        """What would change; None from one that cannot tell."""


class Previewer:
    """Asks the planner and the plugins."""

    def __init__(
        self,
        *,
        planner: Planner,
        plugins: Mapping[str, PreviewPlugin],
        configs: Iterable[PluginConfig],
        sources: Sources,
        mask: Callable[[str], str] = str,
        clock: Callable[[], float],
    ) -> None:
        """`mask` takes known secrets out of what plugins say."""
        self._planner = planner
        self._plugins = plugins
        self._configs = tuple(configs)
        self._sources = sources
        self._mask = mask
        self._clock = clock

    def blank(
        self, application: Application, wanted: Command.BuildPlanPreview
    ) -> ApplicationPlanPreviewResult:
        """The answer about an application before anything is known."""
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
        application: Application,
        merged: Commit,
        running: ApplicationDeploymentReference | None,
        wanted: Command.BuildPlanPreview,
    ) -> ApplicationPlanPreviewResult:
        """What deploying the merge would do; what goes wrong is part of the answer."""
        result = self.blank(application, wanted)
        made = self._deployment(application, merged, wanted.head_branch)
        deployment = with_targets(made, self._configs)
        try:
            plan = await self._planner.plan(deployment, running)
            result.sync_strategy = plan.strategy
            names = {stage.metadata[PLUGIN] for stage in plan.stages}
            result.plugin_names.extend(sorted(names))
            await self._ask(deployment, running, sorted(names), result)
        except PipecdError as error:
            result.error = self._mask(sentence(error))
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
        async with AsyncExitStack() as opened:
            target = await opened.enter_async_context(open_target(self._sources, deployment))
            request = GetPlanPreviewRequest(
                piped_id=deployment.piped_id,
                application_id=deployment.application_id,
                application_name=deployment.application_name,
                target_deployment_source=target,
            )
            if running is not None:
                source = await enter_running(
                    opened,
                    self._sources,
                    deployment,
                    running.trigger.commit.hash,
                    running.config_filename,
                )
                if source is not None:
                    request.running_deployment_source.CopyFrom(source)
            for name in asked:
                del request.deploy_targets[:]
                request.deploy_targets.extend(
                    deployment.deploy_targets_by_plugin[name].deploy_targets
                )
                try:
                    answer = await self._plugins[name].get_plan_preview(request, deadline=LIMIT)
                except PluginError as error:
                    failures.append(f"[{name}] {self._mask(str(error))}")
                    continue
                for each in answer.results if answer is not None else ():
                    unchanged.append(each.no_change)
                    result.plugin_plan_results.append(
                        PluginPlanPreviewResult(
                            plugin_name=name,
                            deploy_target=each.deploy_target,
                            plan_summary=self._shown(each.summary.encode()),
                            plan_details=self._shown(each.details),
                            diff_language=each.diff_language,
                        )
                    )
        result.no_change = bool(unchanged) and all(unchanged) and not failures
        result.error = "\n".join(failures)

    def _shown(self, text: bytes) -> bytes:
        return self._mask(text.decode(errors="replace")).encode()

    def _deployment(self, application: Application, merged: Commit, branch: str) -> Deployment:
        """A deployment that nobody makes, complete enough for every plugin."""
        now = max(1, int(self._clock()))
        deployment = Deployment(
            id=f"preview-{application.id}-{merged.hash[:12]}",
            application_id=application.id,
            application_name=application.name,
            piped_id=application.piped_id,
            project_id=application.project_id,
            kind=application.kind,
            git_path=application.git_path,
            cloud_provider=application.cloud_provider,
            platform_provider=application.platform_provider,
            labels=application.labels,
            trigger=DeploymentTrigger(
                commit=CommitMessage(
                    hash=merged.hash,
                    message=merged.subject,
                    author=merged.author,
                    branch=branch,
                    created_at=merged.created_at,
                ),
                commander=COMMANDER,
                timestamp=now,
                sync_strategy=AUTO,
            ),
            created_at=now,
            updated_at=now,
        )
        for plugin, targets in application.deploy_targets_by_plugin.items():
            deployment.deploy_targets_by_plugin[plugin].CopyFrom(targets)
        return deployment
