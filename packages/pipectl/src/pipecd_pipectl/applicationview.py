# SPDX-License-Identifier: Apache-2.0
"""An application as people read it: a line of a table, and a page."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import click

from pipecd_model.gitnames import BadGitNameError
from pipecd_model.holds import find_waiting
from pipecd_model.registration import get_place, make_registered_id
from pipecd_pipectl.client import Client
from pipecd_pipectl.controlview import describe_hold, describe_pinned
from pipecd_pipectl.deploymentview import format_targets
from pipecd_pipectl.output import echo, print_fields
from pipecd_pipectl.statuses import (
    COLOURS,
    ApplicationStatus,
    describe_application,
    needs_last_deployment,
)
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age, format_moment, when
from pipecd_pipectl.typeable import SHORT_ID, format_typeable
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl
from pipecd_wire.rpc import CallError, call

MOST_LOOKED_UP: Final = 100
"""Last deployments that are read for one table."""

BEGUN: Final = ("DEPLOYMENT_PLANNED", "DEPLOYMENT_RUNNING", "DEPLOYMENT_ROLLING_BACK")

Deployments = Mapping[str, deployment_pb2.Deployment]


async def read_last_deployments(
    client: Client, applications: Sequence[application_pb2.Application]
) -> dict[str, deployment_pb2.Deployment]:
    """Returns, by application, the deployment that decides its status, where one does.

    That is the one that runs; else the last one, if it was not a success.
    """
    found = {}
    if any(each.deploying for each in applications):
        request = pb.ListDeploymentsRequest(statuses=BEGUN, limit=MOST_LOOKED_UP)
        begun = await call(client.api.ListDeployments, request)
        found = {each.application_id: each for each in begun.deployments}
    wanted = [it for it in applications if it.id not in found and needs_last_deployment(it)]
    for application in wanted[:MOST_LOOKED_UP]:
        if last := await read_newest_deployment(client, application):
            found[application.id] = last
    return found


async def read_newest_deployment(
    client: Client, application: application_pb2.Application
) -> deployment_pb2.Deployment | None:
    """Returns the deployment that was started last; None when there is none, or none any more."""
    newest = application.most_recently_triggered_deployment.deployment_id
    if not newest:
        return None
    try:
        by_id = pb.GetDeploymentRequest(deployment_id=newest)
        return (await call(client.api.GetDeployment, by_id)).deployment
    except CallError as error:
        if error.status != "NOT_FOUND":  # it was too old to be kept
            raise
        return None


def print_applications(
    applications: Sequence[application_pb2.Application],
    last: Deployments,
    controls: Mapping[str, ApplicationControl],
    *,
    wide: bool,
) -> None:
    """Prints a table of applications, by name."""
    short = {} if wide else shorten_ids(each.id for each in applications)
    now = time.time()
    status = {
        each.id: describe_application(each, last.get(each.id), controls.get(each.id))
        for each in applications
    }
    columns: list[Column[application_pb2.Application]] = [
        Column(heading="NAME", cell=lambda it: it.name),
        Column(
            heading="STATUS",
            cell=lambda it: status[it.id].word,
            colour=lambda it: COLOURS.get(status[it.id].word),
            fixed=True,
        ),
        Column(heading="DEPLOYED", cell=lambda it: _format_deployed(it, now), fixed=True),
        Column(heading="COMMIT", cell=_get_commit, fixed=True),
        Column(heading="ID", cell=lambda it: short.get(it.id, it.id), fixed=True),
        Column(heading="FOLDER", cell=_get_folder, wide=True),
        Column(heading="LABELS", cell=_format_labels, wide=True),
        Column(
            heading="TARGETS",
            cell=lambda it: format_targets(it.deploy_targets_by_plugin),
            wide=True,
        ),
        Column(heading="PIPED", cell=lambda it: it.piped_id, wide=True),
        Column(heading="UPDATED", cell=lambda it: when(it.updated_at), wide=True),
        Column(heading="REASON", cell=lambda it: status[it.id].reason),
    ]
    print_table(columns, sorted(applications, key=lambda it: (it.name, it.id)), wide=wide)


def print_application(
    application: application_pb2.Application,
    newest: deployment_pb2.Deployment | None,
    status: ApplicationStatus,
    piped_name: str,
    control: ApplicationControl,
) -> None:
    """Prints the page of an application; `newest` is the deployment that was started last."""
    now = time.time()
    git = application.git_path
    done = application.most_recently_successful_deployment
    triggered = application.most_recently_triggered_deployment
    word = click.style(status.word, fg=COLOURS.get(status.word), bold=True)
    echo(f"{click.style(application.name, bold=True)}  {word}")
    echo()
    print_fields(
        [
            ("id", application.id),
            ("description", application.description),
            ("labels", _format_labels(application)),
            ("piped", f"{piped_name} ({application.piped_id})".lstrip()),
            ("repository", f"{git.repo.id} ({git.repo.remote}, branch {git.repo.branch})"),
            ("file", f"{git.path}/{git.config_filename}"),
            ("registered", "by its piped, which found the file" if _is_found(application) else ""),
            ("targets", format_targets(application.deploy_targets_by_plugin)),
            ("last targets", _format_other_targets(application, newest)),
            ("provider", application.platform_provider),
            ("reason", status.reason),
            ("held", describe_hold(control, now)),
            ("pinned", describe_pinned(control, now)),
            ("waits", find_waiting(application.sync_state)),
            ("deployed", _format_reference(done, now)),
            (
                "last started",
                ""
                if triggered.deployment_id == done.deployment_id
                else _format_reference(triggered, now),
            ),
        ]
    )
    if control.HasField("hold") or control.HasField("pin"):
        echo()
        echo(
            f"next: pipectl application release {format_typeable(application.name, application.id)}"
        )


def name_applications(applications: Sequence[application_pb2.Application]) -> list[str]:
    """Returns what a command takes for each: its name, or its id where names are shared."""
    names = [each.name for each in applications]
    return [each.name if names.count(each.name) == 1 else each.id for each in applications]


def _format_other_targets(
    application: application_pb2.Application, newest: deployment_pb2.Deployment | None
) -> str:
    """Returns the targets of a deployment that are not those which are registered.

    An application file may name its own, which only its deployments know.
    """
    used = format_targets(newest.deploy_targets_by_plugin) if newest else ""
    if newest is None or not used or used == format_targets(application.deploy_targets_by_plugin):
        return ""
    return f"{used} (of the deployment {newest.id[:SHORT_ID]})"


def _format_reference(reference: application_pb2.ApplicationDeploymentReference, now: float) -> str:
    if not reference.deployment_id:
        return ""
    commit = reference.trigger.commit
    message = commit.message.partition("\n")[0]
    at = format_moment(reference.completed_at or reference.started_at, now)
    return f'{reference.deployment_id[:8]}, commit {commit.hash[:7]} "{message}", {at}'


def _format_deployed(application: application_pb2.Application, now: float) -> str:
    done = application.most_recently_successful_deployment
    return format_age(done.completed_at or done.started_at, now)


def _get_commit(application: application_pb2.Application) -> str:
    return application.most_recently_successful_deployment.trigger.commit.hash[:7]


def _get_folder(application: application_pb2.Application) -> str:
    return f"{application.git_path.repo.id}:{application.git_path.path}"


def _format_labels(application: application_pb2.Application) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(application.labels.items()))


def _is_found(application: application_pb2.Application) -> bool:
    """Returns whether a piped has registered it, rather than a person."""
    try:
        place = get_place(application.git_path)
    except BadGitNameError:
        return False
    return application.id == make_registered_id(application.project_id, place)
