# SPDX-License-Identifier: Apache-2.0
"""Reads the commits of a deployment: only the application file, or with a private worktree.

A worktree costs a checkout. Most of planning needs only the application file of the commit, and so
do stages that work without files.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from pipecd_model.config import ApplicationConfig, load_application
from pipecd_model.errors import ConfigError, SourceError
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from piped.git import GitError, NoCommitError
from piped.plan.protocols import CommitSources

log = logger(__name__)


def open_target(
    sources: CommitSources, deployment: Deployment
) -> AbstractAsyncContextManager[DeploymentSource]:
    """Opens a private worktree of the target commit while the block runs."""
    return sources.open(
        deployment.git_path,
        deployment.trigger.commit.hash,
        config_filename=deployment.git_path.config_filename,
    )


@asynccontextmanager
async def open_both(
    sources: CommitSources, deployment: Deployment, running: ApplicationDeploymentReference | None
) -> AsyncIterator[tuple[DeploymentSource, DeploymentSource | None]]:
    """Yields the files of the target commit, and those of the running commit or None.

    None when there is no running commit, or when it cannot be read any more.
    """
    async with AsyncExitStack() as opened:
        target = await opened.enter_async_context(open_target(sources, deployment))
        before = None
        if running is not None:
            before = await enter_running(
                opened,
                sources,
                deployment,
                running.trigger.commit.hash,
                running.config_filename,
            )
        yield target, before


async def enter_running(
    opened: AsyncExitStack,
    sources: CommitSources,
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
