# SPDX-License-Identifier: Apache-2.0
"""Applications: registered, changed and deleted by people; `application_reports` has the rest."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import limits, request_names
from pipecd_model.errors import ConfigError, ConflictError, NotFoundError
from pipecd_model.ids import new_id
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import application_pb2, common_pb2, deployment_pb2, piped_pb2
from pipecd_wire.webservice import service_pb2 as webservice

# git@host:owner/name.git, ssh://git@host:22/owner/name.git, https://host/owner/name.git
SCP_LIKE: Final = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?P<path>[^/\s].*)$")
URL: Final = re.compile(
    r"^(?:ssh|https?|git)://(?:[^@/]+@)?(?P<host>[^:/]+)(?::\d+)?/(?P<path>.+)$"
)


async def add(
    stores: Stores,
    project_id: str,
    request: apiservice.AddApplicationRequest | webservice.AddApplicationRequest,
    now: Now,
    *,
    wanted_id: str | None = None,
) -> str:
    """Register an application with a piped that has its repository; answers its id."""
    limits.text("name", request.name, limits.NAME)
    limits.text("description", request.description, limits.DESCRIPTION)
    limits.labels("labels", request.labels)
    request_names.application_path(request.git_path.path, request.git_path.config_filename)
    piped = await stores.pipeds.get(project_id, request.piped_id)
    repository = _repository(piped, request.git_path.repo.id)
    at = now()
    application = application_pb2.Application(
        id=wanted_id or new_id(),
        name=request.name,
        piped_id=piped.id,
        project_id=project_id,
        kind=request.kind,
        git_path=common_pb2.ApplicationGitPath(
            repo=repository,
            path=request.git_path.path,
            config_filename=request.git_path.config_filename,
            url=browse_url(repository.remote, repository.branch, request.git_path.path),
        ),
        platform_provider=request.platform_provider,
        cloud_provider=request.platform_provider,
        description=request.description,
        labels=request.labels,
        created_at=at,
        updated_at=at,
    )
    if isinstance(request, webservice.AddApplicationRequest):
        _set_targets(application, request.deploy_targets_by_plugin)
    try:
        await stores.applications.add(application)
    except ConflictError:
        if wanted_id is None:
            raise
        await stores.applications.get(project_id, wanted_id)  # made by this call's first attempt
    return application.id


def _repository(piped: piped_pb2.Piped, repo_id: str) -> common_pb2.ApplicationGitRepository:
    for repository in piped.repositories:
        if repository.id == repo_id:
            return repository
    known = ", ".join(repr(repository.id) for repository in piped.repositories)
    raise NotFoundError(
        f"the piped {piped.name!r} has no repository {repo_id!r}",
        hint=f"it has {known}" if known else "start it: it reports its repositories then",
    )


def browse_url(remote: str, branch: str, path: str) -> str:
    """Where a person sees the folder; empty for a repository that no site shows."""
    found = URL.match(remote) or SCP_LIKE.match(remote)
    if not found:
        return ""
    host = found["host"]
    repository = found["path"].strip("/").removesuffix(".git")
    tree = "src" if "bitbucket" in host else "tree"
    return f"https://{host}/{repository}/{tree}/{branch}/{path.strip('/')}".rstrip("/")


async def change(
    stores: Stores,
    project_id: str,
    application_id: str,
    edit: Callable[[application_pb2.Application], None],
) -> None:
    """Let a person change an application that is not deleted."""

    await stores.applications.update(project_id, application_id, _unless_deleted(edit))


async def rename_config_file(
    stores: Stores, project_id: str, application_ids: Iterable[str], filename: str
) -> None:
    """Give the configuration files of several applications a name: of all of them, or of none."""

    def edit(application: application_pb2.Application) -> None:
        request_names.application_path(application.git_path.path, filename)
        application.git_path.config_filename = filename

    async def work(transaction: Transaction) -> None:
        for application_id in application_ids:
            await stores.applications.update_in(
                transaction, project_id, application_id, _unless_deleted(edit)
            )

    await stores.database.write(work)


def _unless_deleted(
    edit: Callable[[application_pb2.Application], None],
) -> Callable[[application_pb2.Application], None]:
    def checked(application: application_pb2.Application) -> None:
        if application.deleted:
            raise ConfigError(f"the application {application.name!r} is deleted")
        edit(application)

    return checked


async def move(
    stores: Stores,
    project_id: str,
    application_id: str,
    *,
    piped_id: str,
    platform_provider: str,
    config_filename: str,
    deploy_targets: Mapping[str, deployment_pb2.DeployTargets],
) -> None:
    """Give it to a piped, and say where that deploys it to. What git tells stays git's."""
    await stores.pipeds.get(project_id, piped_id)

    def edit(application: application_pb2.Application) -> None:
        request_names.application_path(application.git_path.path, config_filename)
        application.piped_id = piped_id
        application.platform_provider = platform_provider
        application.cloud_provider = platform_provider
        application.git_path.config_filename = config_filename
        _set_targets(application, deploy_targets)

    await change(stores, project_id, application_id, edit)


async def set_targets(
    stores: Stores,
    project_id: str,
    application_id: str,
    deploy_targets: Mapping[str, deployment_pb2.DeployTargets],
) -> None:
    """Say where a v1 piped deploys it to. The platform provider stays, for a way back."""

    def edit(application: application_pb2.Application) -> None:
        _set_targets(application, deploy_targets)

    await change(stores, project_id, application_id, edit)


async def switch(stores: Stores, project_id: str, application_id: str, *, disabled: bool) -> None:
    """Enable or disable it."""

    def edit(application: application_pb2.Application) -> None:
        application.disabled = disabled

    await change(stores, project_id, application_id, edit)


def _set_targets(
    application: application_pb2.Application,
    deploy_targets: Mapping[str, deployment_pb2.DeployTargets],
) -> None:
    if len(deploy_targets) > limits.TARGETS:
        raise ConfigError(
            f"invalid request: deploy_targets_by_plugin: {len(deploy_targets)} plugins,"
            f" at most {limits.TARGETS}"
        )
    application.deploy_targets_by_plugin.clear()
    for plugin, targets in deploy_targets.items():
        application.deploy_targets_by_plugin[plugin].CopyFrom(targets)


async def delete(stores: Stores, project_id: str, application_id: str, now: Now) -> None:
    """Mark it as deleted, for good. May be repeated."""

    def edit(application: application_pb2.Application) -> None:
        if not application.deleted:
            application.deleted = True
            application.disabled = True
            application.deleted_at = now()

    await stores.applications.update(project_id, application_id, edit)
