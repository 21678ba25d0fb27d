# SPDX-License-Identifier: Apache-2.0
"""What a deployment changes against what ran before it, whether it is completed or not.

Git says how the files differ. Plugins compare with what runs now, so that they are asked only
while the deployment is not completed: afterwards they would say that nothing changes. As in every
preview, nothing of either commit is executed.
"""

from collections.abc import Callable, Mapping

from pipecd_model.deployment import is_completed
from pipecd_model.errors import PipecdError, SourceError
from pipecd_piped.git import GitError, Repository
from pipecd_piped.git.patch import read_patch
from pipecd_piped.preview.application import Previewer
from pipecd_piped.preview.difference import MOST_DETAILS, cut_diffs, list_changed_files, shorten
from pipecd_piped.trigger.protocols import Configs
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import DeploymentDiff
from pipecd_wire.pipecd.push import push_pb2 as push


class DeploymentComparer:
    """Compares the commit of a deployment with the one that ran before it."""

    def __init__(
        self,
        *,
        repositories: Mapping[str, Repository],
        configs: Configs,
        previewer: Previewer,
        mask: Callable[[str], str] = str,
    ) -> None:
        """`mask` replaces known secrets in what plugins say."""
        self._repositories = repositories
        self._configs = configs
        self._previewer = previewer
        self._mask = mask

    async def compare(self, asked: push.CompareDeployment) -> DeploymentDiff:
        """Returns what the deployment changes. Raises PipecdError when its commit is gone."""
        deployment = asked.deployment
        repository = self._repositories.get(deployment.git_path.repo.id)
        if repository is None:
            raise SourceError(
                f"there is no repository {deployment.git_path.repo.id!r} in the piped config"
            )
        diff = DeploymentDiff(
            running_commit_hash=asked.running_commit_hash,
            commit_hash=deployment.trigger.commit.hash,
        )
        errors = [await self._fill_files(diff, repository, deployment)]
        if not is_completed(deployment.status):
            compared = await self._previewer.compare(deployment, _make_running(asked))
            diff.diffs.extend(cut_diffs(compared.plugin_plan_results, self._mask))
            errors.append(self._mask(compared.error))
        diff.error = "; ".join(filter(None, errors))
        return diff

    async def _fill_files(
        self, diff: DeploymentDiff, repository: Repository, deployment: Deployment
    ) -> str:
        """Adds the files that differ; returns why that is not possible, else nothing."""
        path = deployment.git_path
        (config,) = await self._configs.load_all(repository, diff.commit_hash, [path])
        if isinstance(config, PipecdError):
            raise config
        if not diff.running_commit_hash:
            return ""
        try:
            files, diff.files_left_out = await list_changed_files(
                repository, path, config, diff.running_commit_hash, diff.commit_hash
            )
            diff.files.extend(files)
            patch = await read_patch(
                repository.mirror, diff.running_commit_hash, diff.commit_hash, files
            )
        except GitError as error:
            return error.with_hint()
        diff.git_diff = shorten(self._mask(patch), MOST_DETAILS)
        return ""


def _make_running(asked: push.CompareDeployment) -> ApplicationDeploymentReference | None:
    if not asked.running_commit_hash:
        return None
    filename = asked.running_config_filename or asked.deployment.git_path.config_filename
    running = ApplicationDeploymentReference(config_filename=filename)
    running.trigger.commit.hash = asked.running_commit_hash
    return running
