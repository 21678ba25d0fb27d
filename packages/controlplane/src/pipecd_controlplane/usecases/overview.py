# SPDX-License-Identifier: Apache-2.0
"""What a project needs a look at: what is broken, waits for a person, runs, or changed lately."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import pipeds
from pipecd_controlplane.usecases.application_index import IndexedApplication
from pipecd_controlplane.usecases.deployment_briefs import describe_wait, make_brief
from pipecd_controlplane.usecases.roles import Grant
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_wire.model import application_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.api import overview_pb2 as pb

OPEN: Final = (
    model.DEPLOYMENT_PENDING,
    model.DEPLOYMENT_PLANNED,
    model.DEPLOYMENT_RUNNING,
    model.DEPLOYMENT_ROLLING_BACK,
)
OVER: Final = (model.DEPLOYMENT_SUCCESS, model.DEPLOYMENT_FAILURE, model.DEPLOYMENT_CANCELLED)
DEFAULT_MOST: Final = 10
MOST: Final = 50
MOST_COUNTED: Final = 1000
"""Deployments that are counted; with more, a number is no answer to anything."""
DAY: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRights:
    """What the caller may see and do; None is nothing."""

    name: str
    see_deployments: Grant | None
    change_deployments: Grant | None
    see_pipeds: Grant | None


async def make_overview(
    stores: Stores,
    presence: Presence,
    project_id: str,
    entries: Collection[IndexedApplication],
    rights: OverviewRights,
    request: pb.GetOverviewRequest,
    now: Now,
) -> pb.GetOverviewResponse:
    """Returns the overview of the applications that the caller may see."""
    most = min(request.most or DEFAULT_MOST, MOST)
    enabled = [each for each in entries if not each.disabled]
    response = pb.GetOverviewResponse(
        application_count=len(entries),
        disabled_application_count=len(entries) - len(enabled),
        out_of_sync_count=sum(each.sync_status == application_pb2.OUT_OF_SYNC for each in enabled),
    )
    await _add_broken(stores, project_id, enabled, rights, response, most)
    if rights.see_deployments is not None:
        running = await _list(stores, project_id, OPEN, 0, rights.see_deployments)
        _add_running(running, rights, response, most)
        since = request.changed_since.seconds or now() - DAY
        changed = await _list(stores, project_id, OVER, since, rights.see_deployments)
        changed = [each for each in changed if each.completed_at >= since]
        changed.sort(key=lambda each: each.completed_at, reverse=True)
        response.changed_count = len(changed)
        response.changed.extend(make_brief(each) for each in changed[:most])
    if rights.see_pipeds is not None:
        known = await stores.pipeds.list_by_project(project_id)
        online = await pipeds.find_online(stores, presence, project_id, now)
        response.piped_count = len(known)
        response.offline_piped_names.extend(
            sorted(each.name for each in known if not each.disabled and each.id not in online)
        )
    return response


async def _list(
    stores: Stores, project_id: str, statuses: tuple[int, ...], since: int, grant: Grant
) -> list[model.Deployment]:
    """Returns deployments that the caller may see, newest first."""
    wanted = DeploymentFilter(statuses=statuses, updated_since=since)
    found: list[model.Deployment] = []
    cursor = ""
    while True:
        page = await stores.deployments.page(project_id, wanted, limit=200, cursor=cursor)
        found += [each for each in page.items if grant.covers(each.labels)]
        cursor = page.cursor
        if not cursor or not page.items or len(found) >= MOST_COUNTED:
            return found[:MOST_COUNTED]


def _add_running(
    running: list[model.Deployment],
    rights: OverviewRights,
    response: pb.GetOverviewResponse,
    most: int,
) -> None:
    response.running_count = len(running)
    response.running.extend(make_brief(each) for each in running[:most])
    mine: list[pb.WaitingDeployment] = []
    others: list[pb.WaitingDeployment] = []
    for deployment in running:
        wait = describe_wait(deployment)
        if wait is not None:
            can = can_answer(wait, deployment, rights.name, rights.change_deployments)
            (mine if can else others).append(wait)
    for waits in (mine, others):
        waits.sort(key=lambda wait: wait.since)
    response.waiting_for_me_count, response.waiting_for_others_count = len(mine), len(others)
    response.waiting_for_me.extend(mine[:most])
    response.waiting_for_others.extend(others[:most])


def can_answer(
    wait: pb.WaitingDeployment,
    deployment: model.Deployment,
    name: str,
    change_deployments: Grant | None,
) -> bool:
    """Returns whether a caller of this name can do what is waited for."""
    if change_deployments is None or not change_deployments.covers(deployment.labels):
        return False
    return not wait.approvers or name in wait.approvers


async def _add_broken(
    stores: Stores,
    project_id: str,
    enabled: list[IndexedApplication],
    rights: OverviewRights,
    response: pb.GetOverviewResponse,
    most: int,
) -> None:
    broken = sorted((each for each in enabled if each.is_broken), key=lambda each: -each.changed_at)
    response.broken_count = len(broken)
    for each in broken[:most]:
        application = await stores.applications.find(project_id, each.id)
        if application is not None:
            response.broken.append(await _describe_broken(stores, application, each, rights))


async def _describe_broken(
    stores: Stores,
    application: application_pb2.Application,
    entry: IndexedApplication,
    rights: OverviewRights,
) -> pb.BrokenApplication:
    found = pb.BrokenApplication(
        application_id=application.id,
        application_name=application.name,
        labels=application.labels,
        since=entry.changed_at,
    )
    if application.sync_state.status == application_pb2.INVALID_CONFIG:
        found.causes.append(pb.BrokenApplication.INVALID_CONFIG)
        found.sentence = application.sync_state.reason or application.sync_state.short_reason
        found.since = application.sync_state.timestamp or found.since
    if entry.status == pb.FAILED:
        found.causes.append(pb.BrokenApplication.DEPLOYMENT_FAILED)
        deployment = await stores.deployments.find(application.project_id, entry.deployment_id)
        grant = rights.see_deployments
        if deployment is not None and grant is not None and grant.covers(deployment.labels):
            found.deployment.CopyFrom(make_brief(deployment))
            found.sentence = found.sentence or deployment.status_reason
            found.since = deployment.completed_at or found.since
    control = await stores.controls.find(application.project_id, application.id)
    found.is_held = control is not None and control.message.HasField("hold")
    return found
