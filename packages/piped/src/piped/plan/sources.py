# SPDX-License-Identifier: Apache-2.0
"""Commits as planning and running need them: read without a tree, or with one of their own.

A tree costs a checkout. Most of planning needs the application's file and nothing else of the
commit, and so do stages that work without files.
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
    """The files that are deployed."""
    return sources.open(
        deployment.git_path,
        deployment.trigger.commit.hash,
        config_filename=deployment.git_path.config_filename,
    )


@asynccontextmanager
async def open_both(
    sources: CommitSources, deployment: Deployment, running: ApplicationDeploymentReference | None
) -> AsyncIterator[tuple[DeploymentSource, DeploymentSource | None]]:
    """The files that are deployed, and those of what runs if they can be had."""
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
    """The files of what runs, until the stack is closed; None when they cannot be had any more.

    That happens when a branch was rewritten, or when nobody has the key of its secrets any more.
    Were it an error, the application could never be deployed again, since every deployment compares
    with the same commit.
    """
    try:
        return await opened.enter_async_context(
            sources.open(deployment.git_path, commit, config_filename=config_filename)
        )
    except (SourceError, ConfigError) as error:
        if isinstance(error, GitError) and not isinstance(error, NoCommitError):
            raise  # git is in trouble: that passes, or is told
        log.warning("plan.running_commit_gone", commit=commit, reason=str(error))
        return None


async def read_target(sources: CommitSources, deployment: Deployment) -> DeploymentSource:
    """Returns the application of the commit that is deployed, without its files."""
    return await sources.read(
        deployment.git_path,
        deployment.trigger.commit.hash,
        config_filename=deployment.git_path.config_filename,
    )


def read_config(source: DeploymentSource) -> ApplicationConfig:
    """The application file of a commit; raises ConfigError with all its faults."""
    file = source.application_config_filename
    return load_application(source.application_config, file=file).config
