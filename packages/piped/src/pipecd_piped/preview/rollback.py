# SPDX-License-Identifier: Apache-2.0
"""What a roll-back would change: the files in git, and what the plugins say of it.

As in every preview, nothing of the commit is executed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import NotFoundError, PipecdError, SourceError
from pipecd_model.stage import is_rollback
from pipecd_model.trigger import find_touching
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.git import Commit, GitError, Repository
from pipecd_piped.preview.application import Previewer
from pipecd_piped.schedule.services import LastSuccesses
from pipecd_piped.source import place_of
from pipecd_piped.trigger.asked import find_asked_commit
from pipecd_piped.trigger.deployment import DeploymentRequest
from pipecd_piped.trigger.protocols import Configs
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.planpreview_pb2 import PluginPlanPreviewResult
from pipecd_wire.pipecd.control.control_pb2 import PluginDiff, RollBackPreview
from pipecd_wire.pipecd.push import push_pb2 as push

MOST_FILES: Final = 100
MOST_DETAILS: Final = 1024 * 1024
"""Characters of all plugins' details together; each has the same share."""

CUT: Final = "\n… the rest is left out, because it is too long\n"


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
        preview.diffs.extend(self._cut(planned.result.plugin_plan_results))
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
            changed = await repository.list_changed_paths(
                preview.running_commit_hash, preview.commit_hash
            )
        except GitError as error:
            preview.error = error.with_hint()
            return
        files = sorted(
            find_touching(
                changed,
                app_dir=place_of(application.git_path).folder,
                paths=config.trigger.on_commit.paths,
                ignores=(),
            )
        )
        preview.files.extend(file.encode(errors="replace").decode() for file in files[:MOST_FILES])
        preview.files_left_out = max(0, len(files) - MOST_FILES)

    def _cut(self, results: Iterable[PluginPlanPreviewResult]) -> list[PluginDiff]:
        found = list(results)
        share = MOST_DETAILS // max(1, len(found))
        return [
            PluginDiff(
                plugin_name=each.plugin_name,
                deploy_target=each.deploy_target,
                summary=self._mask(_shorten(each.plan_summary, share)),
                details=self._mask(_shorten(each.plan_details, share)),
                language=each.diff_language,
                no_change=not each.plan_details,
            )
            for each in found
        ]


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


def _shorten(text: bytes, most: int) -> str:
    shown = text.decode(errors="replace")
    return shown if len(shown) <= most else f"{shown[:most]}{CUT}"
