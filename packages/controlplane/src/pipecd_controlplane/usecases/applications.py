# SPDX-License-Identifier: Apache-2.0
"""Applications: registered, changed and deleted by people; `application_reports` has the rest."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import commands, limits, request_names
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model import command
from pipecd_model.errors import ConfigError, ConflictError, NotFoundError
from pipecd_model.holds import check_sync
from pipecd_model.ids import new_id
from pipecd_wire.model import (
    application_pb2,
    command_pb2,
    common_pb2,
    deployment_pb2,
    piped_pb2,
)

# git@host:owner/name.git, ssh://git@host:22/owner/name.git, https://host/owner/name.git
SCP_LIKE: Final = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?P<path>[^/\s].*)$")
URL: Final = re.compile(
    r"^(?:ssh|https?|git)://(?:[^@/]+@)?(?P<host>[^:/]+)(?::\d+)?/(?P<path>.+)$"
)


MOST_UNREGISTERED: Final = 5000
"""Suggestions in one response: no person reads more, and the size of a message is limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApplication:
    """An application to register."""

    name: str
    piped_id: str
    git_path: common_pb2.ApplicationGitPath
    kind: common_pb2.ApplicationKind.ValueType = common_pb2.KUBERNETES
    platform_provider: str = ""
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    deploy_targets: Mapping[str, deployment_pb2.DeployTargets] = field(default_factory=dict)


async def add(stores: Stores, requester: Requester, new: NewApplication, now: Now) -> str:
    """Register an application with a piped that has its repository; returns its id.

    A call that is repeated with its idempotency key returns the id that it made before.
    """
    check_new(new)
    piped = await stores.pipeds.get(requester.project_id, new.piped_id)
    wanted_id = requester.request_id("AddApplication")
    application = build_application(
        piped,
        new,
        project_id=requester.project_id,
        application_id=wanted_id or new_id(),
        at=now(),
    )
    try:
        await stores.applications.add(application)
    except ConflictError:
        if wanted_id is None:
            raise
        await stores.applications.get(
            requester.project_id, wanted_id
        )  # made by this call's first attempt
    return application.id


def check_new(new: NewApplication) -> None:
    """Raises ConfigError for an application that cannot be registered with any piped."""
    limits.text("name", new.name, limits.NAME)
    limits.text("description", new.description, limits.DESCRIPTION)
    limits.labels("labels", new.labels)
    request_names.application_path(new.git_path.path, new.git_path.config_filename)


def build_application(
    piped: piped_pb2.Piped, new: NewApplication, *, project_id: str, application_id: str, at: int
) -> application_pb2.Application:
    """Returns the application of a piped that has its repository. Raises NotFoundError."""
    repository = _repository(piped, new.git_path.repo.id)
    application = application_pb2.Application(
        id=application_id,
        name=new.name,
        piped_id=piped.id,
        project_id=project_id,
        kind=new.kind,
        git_path=common_pb2.ApplicationGitPath(
            repo=repository,
            path=new.git_path.path,
            config_filename=new.git_path.config_filename,
            url=browse_url(repository.remote, repository.branch, new.git_path.path),
        ),
        platform_provider=new.platform_provider,
        cloud_provider=new.platform_provider,
        description=new.description,
        labels=new.labels,
        created_at=at,
        updated_at=at,
    )
    _set_targets(application, new.deploy_targets)
    return application


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
    """Returns the URL of the folder on the git host; empty when the remote has no web page."""
    found = URL.match(remote) or SCP_LIKE.match(remote)
    if not found:
        return ""
    host = found["host"]
    repository = found["path"].strip("/").removesuffix(".git")
    tree = "src" if "bitbucket" in host else "tree"
    return f"https://{host}/{repository}/{tree}/{branch}/{path.strip('/')}".rstrip("/")


async def get(
    stores: Stores, requester: Requester, application_id: str
) -> application_pb2.Application:
    """Returns an application that the requester may see. Raises NotFoundError."""
    application = await stores.applications.get(requester.project_id, application_id)
    requester.check("application", application_id, application.labels)
    return application


async def sync(
    stores: Stores,
    requester: Requester,
    application_id: str,
    *,
    by: str,
    strategy: common_pb2.SyncStrategy.ValueType = common_pb2.AUTO,
    method: str = "SyncApplication",
) -> command_pb2.Command:
    """Ask the piped to deploy the application's latest commit.

    `method` tells RPCs apart that do this: an idempotency key is good for one of them.
    Raises StateError while it is pinned: that would undo somebody's roll-back.
    """
    application = await get(stores, requester, application_id)
    control = await stores.controls.find(requester.project_id, application_id)
    if control is not None:
        check_sync(control.message, application.name)
    return await commands.issue(
        stores,
        requester,
        method,
        lambda at: command.sync(application, by=by, at=at, strategy=strategy),
    )


async def _change(
    stores: Stores,
    requester: Requester,
    application_id: str,
    edit: Callable[[application_pb2.Application], None],
) -> None:
    """Edit an application that the requester may see and that is not deleted."""
    edit = _refuse_deleted(edit)

    def edit_visible(application: application_pb2.Application) -> None:
        requester.check("application", application_id, application.labels)
        edit(application)

    await stores.applications.update(requester.project_id, application_id, edit_visible)


async def rename_config_file(
    stores: Stores, project_id: str, application_ids: Iterable[str], filename: str
) -> None:
    """Sets the name of the application file of several applications: of all of them or of none."""

    def edit(application: application_pb2.Application) -> None:
        request_names.application_path(application.git_path.path, filename)
        application.git_path.config_filename = filename

    async def work(transaction: Transaction) -> None:
        for application_id in application_ids:
            await stores.applications.update_in(
                transaction, project_id, application_id, _refuse_deleted(edit)
            )

    await stores.database.write(work)


def _refuse_deleted(
    edit: Callable[[application_pb2.Application], None],
) -> Callable[[application_pb2.Application], None]:
    def edit_registered(application: application_pb2.Application) -> None:
        if application.deleted:
            raise ConfigError(f"the application {application.name!r} is deleted")
        edit(application)

    return edit_registered


async def move(
    stores: Stores,
    requester: Requester,
    application_id: str,
    *,
    piped_id: str,
    platform_provider: str,
    config_filename: str,
    deploy_targets: Mapping[str, deployment_pb2.DeployTargets],
) -> None:
    """Assigns the application to a piped and sets its deploy targets.

    What was read from git stays as it is.
    """
    await get(stores, requester, application_id)
    await stores.pipeds.get(requester.project_id, piped_id)

    def edit(application: application_pb2.Application) -> None:
        request_names.application_path(application.git_path.path, config_filename)
        application.piped_id = piped_id
        application.platform_provider = platform_provider
        application.cloud_provider = platform_provider
        application.git_path.config_filename = config_filename
        _set_targets(application, deploy_targets)

    await _change(stores, requester, application_id, edit)


async def set_targets(
    stores: Stores,
    requester: Requester,
    application_id: str,
    deploy_targets: Mapping[str, deployment_pb2.DeployTargets],
) -> None:
    """Sets the deploy targets that a v1 piped uses.

    The platform provider stays, so that a v0 piped can deploy the application again.
    """

    def edit(application: application_pb2.Application) -> None:
        _set_targets(application, deploy_targets)

    await _change(stores, requester, application_id, edit)


async def set_disabled(
    stores: Stores, requester: Requester, application_id: str, *, disabled: bool
) -> None:
    """Enables or disables the application. Raises ConfigError when it is deleted."""

    def edit(application: application_pb2.Application) -> None:
        application.disabled = disabled

    await _change(stores, requester, application_id, edit)


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


async def delete(stores: Stores, requester: Requester, application_id: str, now: Now) -> None:
    """Marks the application as deleted and disables it, permanently. Idempotent."""

    def edit(application: application_pb2.Application) -> None:
        requester.check("application", application_id, application.labels)
        if not application.deleted:
            application.deleted = True
            application.disabled = True
            application.deleted_at = now()

    await stores.applications.update(requester.project_id, application_id, edit)


async def list_unregistered(stores: Stores, project_id: str) -> list[common_pb2.ApplicationInfo]:
    """Returns the applications that enabled pipeds found in git and that are not registered.

    Sorted by path. A disabled piped would not deploy them, and the records of a piped that is gone
    are ignored.
    """
    enabled = {
        piped.id for piped in await stores.pipeds.list_by_project(project_id) if not piped.disabled
    }
    records = await stores.unregistered.list_by_project(project_id)
    found = []
    for piped_id in enabled & records.keys():
        for told in records[piped_id].message.applications:
            info = common_pb2.ApplicationInfo()
            info.CopyFrom(told)
            info.piped_id = piped_id
            found.append(info)
    found.sort(key=lambda info: (info.path, info.config_filename, info.piped_id))
    return found[:MOST_UNREGISTERED]
