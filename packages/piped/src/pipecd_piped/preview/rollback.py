# SPDX-License-Identifier: Apache-2.0
"""What a roll-back would change: the files in git, and what the plugins say of it.

As in every preview, nothing of the commit is executed.
"""

from collections.abc import Callable, Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import NotFoundError, PipecdError, SourceError
from pipecd_model.stage import is_rollback
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.git import Commit, GitError, Repository
from pipecd_piped.preview.application import Previewer
from pipecd_piped.preview.difference import cut_diffs, list_changed_files
from pipecd_piped.schedule.services import LastSuccesses
from pipecd_piped.trigger.asked import find_asked_commit
from pipecd_piped.trigger.deployment import DeploymentRequest
from pipecd_piped.trigger.protocols import Configs
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.pipecd.control.control_pb2 import RollBackPreview
from pipecd_wire.pipecd.push import push_pb2 as push


class RollBackPreviewer:
    """Says what bringing an application back to a commit would change."""

    def __init__(
        self,
        *,
        repositories: Mapping[str, Repository],
        state: ControlPlaneState,
        configs: Configs,
        successes: LastSuccesses,
        previewer: Previewer,
        mask: Callable[[str], str] = str,
    ) -> None:
        """`mask` replaces known secrets in what plugins say."""
        self._repositories = repositories
        self._state = state
        self._configs = configs
        self._successes = successes
        self._previewer = previewer
        self._mask = mask

    async def preview(self, asked: push.PreviewRollBack) -> RollBackPreview:
        """Returns what a roll-back would change. Raises PipecdError when it is impossible."""
        application = self._state.applications.get(asked.application_id)
        if application is None:
            raise NotFoundError(f"this piped has no application {asked.application_id!r}")
        repository = self._repositories.get(application.git_path.repo.id)
        if repository is None:
            raise SourceError(
                f"there is no repository {application.git_path.repo.id!r} in the piped config"
            )
        commit = await find_asked_commit(
            repository, asked.commit_hash, deployed_before=asked.deployed_before
        )
        (config,) = await self._configs.load_all(repository, commit.hash, [application.git_path])
        if isinstance(config, PipecdError):
            raise config
        running = await self._successes.get(application.id)
        preview = RollBackPreview(
            running_commit_hash=running.trigger.commit.hash if running else "",
            commit_hash=commit.hash,
            commit_message=commit.subject,
            commit_author=commit.author,
            commit_created_at=Timestamp(seconds=commit.created_at),
        )
        await self._fill_files(preview, repository, application, config)
        request = _make_request(application, config, commit, asked)
        planned = await self._previewer.plan_change(request, repository, running)
        preview.stages.extend(stage.name for stage in planned.stages if not is_rollback(stage))
        preview.diffs.extend(cut_diffs(planned.result.plugin_plan_results, self._mask))
        errors = filter(None, (preview.error, self._mask(planned.result.error)))
        preview.error = "; ".join(errors)
        return preview

    async def _fill_files(
        self,
        preview: RollBackPreview,
        repository: Repository,
        application: Application,
        config: ApplicationConfig,
    ) -> None:
        if not preview.running_commit_hash:
            return
        try:
            files, preview.files_left_out = await list_changed_files(
                repository,
                application.git_path,
                config,
                preview.running_commit_hash,
                preview.commit_hash,
            )
        except GitError as error:
            preview.error = error.with_hint()
            return
        preview.files.extend(files)


def _make_request(
    application: Application,
    config: ApplicationConfig,
    commit: Commit,
    asked: push.PreviewRollBack,
) -> DeploymentRequest:
    return DeploymentRequest(
        deployment_id=f"preview-{application.id}-{commit.hash[:12]}",
        application=application,
        config=config,
        head=commit,
        reason="",
        command=push.Command(
            type=push.Command.ROLL_BACK,
            application_id=application.id,
            commander="pipectl",
            commit_hash=commit.hash,
            strategy=asked.strategy,
        ),
    )
