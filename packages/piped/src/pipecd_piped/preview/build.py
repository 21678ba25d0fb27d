# SPDX-License-Identifier: Apache-2.0
"""The preview of a branch: which applications it would deploy, and what that would do."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from pipecd_model import trigger
from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PipecdError, SourceError
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.git import Commit, Repository
from pipecd_piped.preview.application import Previewer
from pipecd_piped.source import place_of
from pipecd_piped.trigger.deployment import DeploymentRequest
from pipecd_piped.trigger.protocols import Configs
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.planpreview_pb2 import ApplicationPlanPreviewResult

AT_ONCE: Final = 3
"""Concurrent previews of applications: each costs two checkouts."""


class PreviewBuilder:
    """Builds the results of a plan preview command."""

    def __init__(
        self,
        *,
        repositories: Mapping[str, Repository],
        state: ControlPlaneState,
        configs: Configs,
        previewer: Previewer,
    ) -> None:
        self._repositories = repositories
        self._state = state
        self._configs = configs
        self._previewer = previewer

    async def build(self, wanted: Command.BuildPlanPreview) -> list[ApplicationPlanPreviewResult]:
        """Returns the previews of all applications that the merge would deploy.

        Raises PipecdError.
        """
        repository = self._repository(wanted)
        merged = await repository.build_merge(wanted.head_commit, wanted.head_branch)
        applications = [
            each
            for each in self._state.applications.values()
            if each.git_path.repo.id == repository.id
        ]
        outcomes = await self._configs.load_all(
            repository, merged.hash, [each.git_path for each in applications]
        )
        places = asyncio.Semaphore(AT_ONCE)
        results: dict[str, ApplicationPlanPreviewResult] = {}

        async def one(application: Application, outcome: ApplicationConfig | PipecdError) -> None:
            async with places:
                try:
                    found = await self._one(repository, merged, application, outcome, wanted)
                except PipecdError as error:
                    found = self._previewer.blank(application, wanted)
                    found.error = error.with_hint()
            if found is not None:
                results[application.id] = found

        async with asyncio.TaskGroup() as tasks:
            for application, outcome in zip(applications, outcomes, strict=True):
                tasks.create_task(one(application, outcome))
        return _sort_results(applications, results)

    async def _one(
        self,
        repository: Repository,
        merged: Commit,
        application: Application,
        outcome: ApplicationConfig | PipecdError,
        wanted: Command.BuildPlanPreview,
    ) -> ApplicationPlanPreviewResult | None:
        """Returns the preview of one application; None when the merge would not deploy it."""
        last = application.most_recently_triggered_deployment.trigger.commit.hash or None
        changed = await repository.list_changed_paths(last, merged.hash) if last else []
        try:
            folder = place_of(application.git_path).folder
        except PipecdError:
            return None  # nowhere in the repository, and so no concern of the merge
        if isinstance(outcome, PipecdError):
            head = await repository.head()
            mine = await repository.list_changed_paths(head.hash, merged.hash)
            if not trigger.is_touched(mine, app_dir=folder, paths=(), ignores=()):
                return None  # its file was broken before
            result = self._previewer.blank(application, wanted)
            result.error = outcome.with_hint()
            return result
        decision = trigger.on_commit(
            outcome, app_dir=folder, head=merged.hash, last=last, changed=changed
        )
        if not decision.deploy:
            return None
        running = (
            application.most_recently_successful_deployment
            if application.HasField("most_recently_successful_deployment")
            else None
        )
        merge = DeploymentRequest(
            deployment_id=f"preview-{application.id}-{merged.hash[:12]}",
            application=application,
            config=outcome,
            head=merged,
            reason=decision.reason,
        )
        return await self._previewer.preview(merge, repository, running, wanted)

    def _repository(self, wanted: Command.BuildPlanPreview) -> Repository:
        repository = self._repositories.get(wanted.repository_id)
        if repository is None:
            raise SourceError(f"this piped has no repository {wanted.repository_id!r}")
        if repository.branch != wanted.base_branch:
            raise SourceError(
                f"this piped deploys from the branch {repository.branch!r} of"
                f" {wanted.repository_id!r}, not from {wanted.base_branch!r}"
            )
        return repository


def _sort_results(
    applications: Sequence[Application], results: Mapping[str, ApplicationPlanPreviewResult]
) -> list[ApplicationPlanPreviewResult]:
    wanted = sorted(applications, key=lambda each: (each.name, each.id))
    return [results[each.id] for each in wanted if each.id in results]
