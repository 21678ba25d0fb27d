# SPDX-License-Identifier: Apache-2.0
"""Reads the commits of a deployment: only the application file, or with a private worktree.

A worktree costs a checkout. Most of planning needs only the application file of the commit, and so
do stages that work without files.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from pipecd_model.config import ApplicationConfig, load_application
from pipecd_model.errors import ConfigError, SourceError
from pipecd_piped.git import GitError, NoCommitError
from pipecd_piped.plan.protocols import CommitSources, OpenSources
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource

log = logger(__name__)


def open_both(
    sources: CommitSources, deployment: Deployment, running: ApplicationDeploymentReference | None
) -> AbstractAsyncContextManager[tuple[DeploymentSource, DeploymentSource | None]]:
    """Opens the files of the target commit, and those of what was deployed last or None."""
    if running is None:
        return open_commits(sources, deployment)
    return open_commits(sources, deployment, running.trigger.commit.hash, running.config_filename)


@asynccontextmanager
async def open_commits(
    sources: CommitSources,
    deployment: Deployment,
    running_commit: str = "",
    running_filename: str = "",
) -> AsyncIterator[tuple[DeploymentSource, DeploymentSource | None]]:
    """Yields the files of the target commit, and those of the running commit or None.

    None when there is no running commit, or when it cannot be read any more.
    """
    path, commit = deployment.git_path, deployment.trigger.commit.hash
    async with AsyncExitStack() as opened:
        wanted = [commit, running_commit] if running_commit else [commit]
        async with sources.reserve(path, wanted) as reserved:
            target = await opened.enter_async_context(
                reserved.open(path, commit, config_filename=path.config_filename)
            )
            before = None
            if running_commit:
                before = await _enter_running(
                    opened, reserved, deployment, running_commit, running_filename
                )
        yield target, before


async def _enter_running(
    opened: AsyncExitStack,
    sources: OpenSources,
    deployment: Deployment,
    commit: str,
    config_filename: str,
) -> DeploymentSource | None:
    """Opens a worktree of the running commit until the stack is closed.

    Returns None when the commit cannot be read any more: a branch was rewritten, or the key of its
    secrets is gone. An error would block the application for ever, since every deployment compares
    with the same running commit.
    """
    try:
        return await opened.enter_async_context(
            sources.open(deployment.git_path, commit, config_filename=config_filename)
        )
    except (SourceError, ConfigError) as error:
        if isinstance(error, GitError) and not isinstance(error, NoCommitError):
            raise  # a fault of git itself: temporary, or one to report
        log.warning("plan.running_commit_gone", commit=commit, reason=str(error))
        return None


async def read_target(sources: CommitSources, deployment: Deployment) -> DeploymentSource:
    """Returns the application at the target commit, without checking out its files."""
    return await sources.read(
        deployment.git_path,
        deployment.trigger.commit.hash,
        config_filename=deployment.git_path.config_filename,
    )


def read_config(source: DeploymentSource) -> ApplicationConfig:
    """Returns the parsed application file of a commit. Raises ConfigError with all its faults."""
    file = source.application_config_filename
    return load_application(source.application_config, file=file).config
