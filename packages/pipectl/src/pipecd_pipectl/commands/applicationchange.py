# SPDX-License-Identifier: Apache-2.0
"""`pipectl application add` and `update`: register an application, and change where it goes."""

from collections.abc import Mapping
from typing import Final

import click

from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.completions import complete_piped_ids, complete_pipeds
from pipecd_pipectl.deploymentview import format_targets
from pipecd_pipectl.lookup import find_piped
from pipecd_pipectl.options import (
    FOLDER_IN_REPOSITORY,
    PAIR,
    application_argument,
    dry_run_option,
    parse_pairs,
    say_dry_run,
)
from pipecd_pipectl.output import echo, output_option, print_data, wants_data
from pipecd_pipectl.selection import read_application
from pipecd_pipectl.typeable import format_typeable
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2, common_pb2, deployment_pb2
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import CallError, call

KINDS: Final = list(common_pb2.ApplicationKind.keys())

Targets = Mapping[str, deployment_pb2.DeployTargets]

target_option = click.option(
    "--deploy-target",
    "targets",
    type=PAIR,
    multiple=True,
    metavar="PLUGIN=TARGET",
    help="Where a plugin deploys it, by the target's name in the piped's configuration; may be"
    " repeated. For v1 pipeds.",
)


@click.command()
@click.argument("name", metavar="[NAME]", default="")
@click.option("--app-name", default=None, help="The same as NAME.")
@click.option(
    "--piped",
    default="",
    help="The piped that deploys it, by name or id.",
    shell_complete=complete_pipeds,
)
@click.option(
    "--piped-id",
    default="",
    help="The same, by its whole id.",
    shell_complete=complete_piped_ids,
)
@click.option("--repo-id", required=True, help="A repository of that piped.")
@click.option(
    "--app-dir",
    required=True,
    type=FOLDER_IN_REPOSITORY,
    help="Folder of the application, from the root of the repository.",
)
@click.option("--config-file-name", default="app.pipecd.yaml", show_default=True)
@click.option("--app-kind", type=click.Choice(KINDS), default=KINDS[0], help="For v0 pipeds.")
@click.option("--platform-provider", default="", help="For v0 pipeds.")
@target_option
@click.option("--description", default="")
@click.option("--labels", default="", help="k=v,k=v")
@dry_run_option
@output_option
@use_client
async def add(
    client: Client,
    *,
    name: str,
    app_name: str | None,
    piped: str,
    piped_id: str,
    repo_id: str,
    app_dir: str,
    config_file_name: str,
    app_kind: str,
    platform_provider: str,
    targets: tuple[tuple[str, str], ...],
    description: str,
    labels: str,
    dry_run: bool,
    output: str,
) -> None:
    """Register an application of a repository."""
    if bool(name) == (app_name is not None):
        raise click.UsageError("give the application's name, once: NAME or --app-name")
    if bool(piped) == bool(piped_id):
        raise click.UsageError("give the piped that deploys it, once: --piped or --piped-id")
    request = pb.AddApplicationRequest(
        name=name or app_name or "",
        piped_id=piped_id or (await find_piped(client, piped)).piped.id,
        git_path=common_pb2.ApplicationGitPath(
            repo=common_pb2.ApplicationGitRepository(id=repo_id),
            path=app_dir,
            config_filename=config_file_name,
        ),
        kind=common_pb2.ApplicationKind.Value(app_kind),
        platform_provider=platform_provider,
        description=description,
        labels=parse_pairs(labels),
    )
    chosen = _gather_targets(targets)
    if dry_run:
        await _say_added(client, request, chosen)
        return
    made = await _add(client, request, chosen)
    if wants_data(output):
        print_data(made, output)
    else:
        echo(f"added application {request.name} with id {made.application_id}")


async def _say_added(client: Client, request: pb.AddApplicationRequest, targets: Targets) -> None:
    found = (await find_piped(client, request.piped_id)).piped
    known = [each.id for each in found.repositories]
    if request.git_path.repo.id not in known:
        echo(
            f"note: the piped {found.name} has reported no repository {request.git_path.repo.id!r},"
            f" but {', '.join(known) or 'none'}",
            err=True,
        )
    await _warn_of_unknown_targets(client, request.piped_id, targets)
    shown = format_targets(targets)
    path = f"{request.git_path.repo.id}:{request.git_path.path}/{request.git_path.config_filename}"
    say_dry_run(
        f"add the application {request.name} of {path} to the piped {found.name}"
        + (f" with the targets {shown}" if shown else "")
    )


def _gather_targets(pairs: tuple[tuple[str, str], ...]) -> dict[str, deployment_pb2.DeployTargets]:
    by_plugin: dict[str, deployment_pb2.DeployTargets] = {}
    for plugin, target in dict.fromkeys(pairs):
        chosen = by_plugin.setdefault(plugin, deployment_pb2.DeployTargets())
        chosen.deploy_targets.append(target)
    return by_plugin


async def _add(
    client: Client, request: pb.AddApplicationRequest, targets: Targets
) -> pb.AddApplicationResponse:
    """Registers an application with its deploy targets in one call, as piped deploys at once."""
    if not targets:
        return await call(client.api.AddApplication, request, metadata=idempotency_key())
    at_once = own.AddApplicationRequest(
        name=request.name,
        piped_id=request.piped_id,
        git_path=request.git_path,
        description=request.description,
        labels=request.labels,
        deploy_targets_by_plugin=targets,
    )
    try:
        added = await call(client.applications.AddApplication, at_once, metadata=idempotency_key())
    except CallError as error:
        if error.status != "UNIMPLEMENTED":
            raise
    else:
        return pb.AddApplicationResponse(application_id=added.application_id)
    # A control plane of upstream's.
    made = await call(client.api.AddApplication, request, metadata=idempotency_key())
    await _set_targets(client, made.application_id, targets)
    return made


async def _set_targets(client: Client, application_id: str, targets: Targets) -> None:
    await call(
        client.api.UpdateApplicationDeployTargets,
        pb.UpdateApplicationDeployTargetsRequest(
            application_id=application_id, deploy_targets_by_plugin=targets
        ),
        metadata=idempotency_key(),
    )


@click.command()
@application_argument
@target_option
@click.option(
    "--piped",
    default="",
    help="The piped that deploys it from now on, by name or id.",
    shell_complete=complete_pipeds,
)
@click.option("--config-file-name", default="", help="The name of its application file.")
@dry_run_option
@use_client
async def update(
    client: Client,
    *,
    name: str,
    app_id: str,
    targets: tuple[tuple[str, str], ...],
    piped: str,
    config_file_name: str,
    dry_run: bool,
) -> None:
    """Change an application's targets, its piped or its file name.

    The targets that are given replace all that it has. Its name, labels and description are read
    from its file in git: change them there.
    """
    if not targets and not piped and not config_file_name:
        raise click.UsageError("nothing to change: give --deploy-target, --piped or a file name")
    found = await read_application(client, name, app_id)
    chosen = _gather_targets(targets)
    new_piped = (await find_piped(client, piped)).piped if piped else None
    await _warn_of_unknown_targets(client, new_piped.id if new_piped else found.piped_id, chosen)
    changes = [
        f"the targets {format_targets(chosen)}" if chosen else "",
        f"the piped {new_piped.name}" if new_piped else "",
        f"the file {config_file_name}" if config_file_name else "",
    ]
    what = f"the application {found.name}: {', '.join(each for each in changes if each)}"
    if dry_run:
        say_dry_run(f"change {what}")
        return
    if new_piped:
        await _move(client, found, new_piped.id, config_file_name, chosen)
    else:
        if config_file_name:
            await call(
                client.api.RenameApplicationConfigFile,
                pb.RenameApplicationConfigFileRequest(
                    application_ids=[found.id], new_filename=config_file_name
                ),
                metadata=idempotency_key(),
            )
        if chosen:
            await _set_targets(client, found.id, chosen)
    echo(f"changed {what}")


async def _move(
    client: Client,
    found: application_pb2.Application,
    piped_id: str,
    config_file_name: str,
    targets: Targets,
) -> None:
    """Gives an application to another piped. That takes its targets away, so they are set anew."""
    git_path = common_pb2.ApplicationGitPath()
    git_path.CopyFrom(found.git_path)
    git_path.config_filename = config_file_name or git_path.config_filename
    await call(
        client.api.UpdateApplication,
        pb.UpdateApplicationRequest(
            application_id=found.id,
            piped_id=piped_id,
            platform_provider=found.platform_provider,
            git_path=git_path,
        ),
        metadata=idempotency_key(),
    )
    kept = targets or dict(found.deploy_targets_by_plugin)
    if not kept:
        return
    try:
        await _set_targets(client, found.id, kept)
    except CallError:
        name = format_typeable(found.name, found.id)
        flags = " ".join(f"--deploy-target {each}" for each in format_targets(kept).split(", "))
        echo(
            f"it is moved, and has no deploy target now: pipectl application update {name} {flags}",
            err=True,
        )
        raise


async def _warn_of_unknown_targets(client: Client, piped_id: str, targets: Targets) -> None:
    """Says which targets the piped has not reported: it may be configured for them later."""
    if not targets:
        return
    found = (await find_piped(client, piped_id)).piped
    known = {plugin.name: set(plugin.deploy_targets) for plugin in found.plugins}
    for plugin, chosen in targets.items():
        for target in chosen.deploy_targets:
            if target not in known.get(plugin, set()):
                has = ", ".join(
                    f"{name}={each}" for name in sorted(known) for each in sorted(known[name])
                )
                echo(
                    f"note: the piped {found.name} has reported no target {plugin}={target},"
                    f" but {has or 'none'}",
                    err=True,
                )
