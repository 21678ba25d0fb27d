# SPDX-License-Identifier: Apache-2.0
"""What a deployment waits for: derived for each request from what is stored and who is connected.

What only its piped knows (places, locks, rules) the piped has reported; a piped that is not
connected is not believed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipecd_controlplane.store.database import View
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployments, pipeds
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_model.deployment import find_stage_to_decide, is_completed, rank_in_queue
from pipecd_model.stage import PLUGIN_KEY
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model import piped_pb2
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.pipecd.push import push_pb2

KINDS: Final[Mapping[QueuedDeployment.Cause.ValueType, pb.Wait.Kind.ValueType]] = {
    QueuedDeployment.SLOT: pb.Wait.SLOT,
    QueuedDeployment.LOCK: pb.Wait.LOCK,
    QueuedDeployment.RULE: pb.Wait.RULE,
    QueuedDeployment.CHAIN: pb.Wait.CHAIN,
    QueuedDeployment.CONTROL_PLANE: pb.Wait.PIPED,
}
"""By what a piped has reported: what it is called in an answer. Another deployment of the same
application is not among them: what that one does is known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What decides whether a deployment goes on: its piped, and the piped's other deployments."""

    piped: piped_pb2.Piped | None
    """None when it was deleted."""
    online: bool
    plugins: Mapping[str, push_pb2.PluginState]
    """By name, as the piped reported them; empty for a piped that reports none."""
    open: Sequence[model.Deployment]
    """The deployments of the piped that are not completed."""
    queued: Mapping[str, QueuedDeployment] = field(default_factory=dict)
    """By deployment, what the piped says that it waits for; empty for a piped that says nothing."""

    def find_queued(self, deployment_id: str) -> QueuedDeployment | None:
        return self.queued.get(deployment_id) if self.online else None


async def explain(
    stores: Stores, presence: Presence, requester: Requester, deployment_id: str, now: Now
) -> list[pb.Wait]:
    """Returns what a deployment waits for, the nearest cause first. Raises NotFoundError."""
    deployment = await deployments.get(stores, requester, deployment_id)
    if is_completed(deployment.status):
        return []
    project_id, piped_id = requester.project_id, deployment.piped_id

    async def read(view: View) -> list[model.Deployment]:
        return await stores.deployments.all_not_completed_in(view, project_id, piped_id)

    queue = (await stores.queues.list_by_project(project_id)).get(piped_id)
    states = (await stores.plugin_states.list_by_project(project_id)).get(piped_id)
    around = Surroundings(
        piped=await stores.pipeds.find(project_id, piped_id),
        online=piped_id in await pipeds.find_online(stores, presence, project_id, now),
        plugins={each.name: each for each in states.message.plugins} if states else {},
        open=await stores.database.read(read),
        queued={each.deployment_id: each for each in queue.message.queued} if queue else {},
    )
    return find_waits(deployment, around)


def find_waits(deployment: model.Deployment, around: Surroundings) -> list[pb.Wait]:
    """Returns what a deployment that is not completed waits for."""
    ahead = _find_ahead(deployment, around)
    found = list(_find_piped_waits(deployment, around))
    if not ahead:
        return found + list(_find_own_waits(deployment, around))
    found.append(_describe_queue(deployment, ahead))
    return found + list(_find_own_waits(ahead[0], around))


def _find_ahead(deployment: model.Deployment, around: Surroundings) -> list[model.Deployment]:
    """Returns the deployments of the same application that come first, in their order."""
    reported = around.find_queued(deployment.id)
    if reported is not None and reported.cause in KINDS:
        return []  # its piped says that it is its turn, but for this
    first = reported.other_deployment_id if reported is not None else ""
    rank = _rank(deployment)
    ahead = [
        other
        for other in around.open
        if other.application_id == deployment.application_id
        and other.id != deployment.id
        and (other.id == first or _rank(other) < rank)
    ]
    return sorted(ahead, key=lambda other: (other.id != first, _rank(other)))


def _rank(deployment: model.Deployment) -> tuple[int, int, int, int, str]:
    return (*rank_in_queue(deployment), deployment.created_at, deployment.id)


def _describe_queue(deployment: model.Deployment, ahead: Sequence[model.Deployment]) -> pb.Wait:
    first = ahead[0]
    stage = next((each.name for each in first.stages if each.status == model.STAGE_RUNNING), "")
    more = f", and {len(ahead) - 1} more" if len(ahead) > 1 else ""
    status = model.DeploymentStatus.Name(first.status).removeprefix("DEPLOYMENT_")
    return pb.Wait(
        kind=pb.Wait.OTHER_DEPLOYMENT,
        sentence=(
            f"queued behind the deployment {first.id} of the same application, which is {status}"
            + (f" at the stage {stage}" if stage else "")
            + more
        ),
        hint="it begins when that one is completed; cancel that one if it is not wanted",
        deployment_id=deployment.id,
        other_deployment_id=first.id,
        position=len(ahead),
    )


def _find_piped_waits(deployment: model.Deployment, around: Surroundings) -> Iterator[pb.Wait]:
    piped = around.piped
    if piped is None:
        sentence, hint = "its piped was deleted", "register a piped, and move the application"
    elif piped.disabled:
        sentence, hint = f"its piped {piped.name!r} is disabled", "enable it"
    elif not around.online:
        sentence = f"its piped {piped.name!r} is not connected"
        hint = "start it; its log says why it cannot connect"
    else:
        return
    yield pb.Wait(
        kind=pb.Wait.PIPED,
        sentence=sentence,
        hint=hint,
        deployment_id=deployment.id,
        piped_id=deployment.piped_id,
    )


def _find_own_waits(deployment: model.Deployment, around: Surroundings) -> Iterator[pb.Wait]:
    """Yields what the deployment whose turn it is waits for."""
    reported = around.find_queued(deployment.id)
    if reported is not None and reported.cause in KINDS:
        yield from _describe_reported(deployment, reported, around)
        return
    if deployment.status == model.DEPLOYMENT_PENDING:
        yield from _find_planning_waits(deployment, around)
        return
    failed = find_stage_to_decide(deployment)
    if failed is not None:
        yield _describe_decision(deployment, failed)
    for stage in deployment.stages:
        if stage.status != model.STAGE_RUNNING:
            continue
        if stage.available_operation == model.MANUAL_OPERATION_APPROVE:
            yield _describe_approval(deployment, stage)
        elif around.online:
            plugin = stage.metadata.get(PLUGIN_KEY, "")
            yield from _find_plugin_waits(deployment, around, lambda name: name == plugin)  # noqa: B023 - consumed at once


def _describe_reported(
    deployment: model.Deployment, reported: QueuedDeployment, around: Surroundings
) -> Iterator[pb.Wait]:
    """Yields what its piped says, and what the one waits for that it waits for."""
    wait = pb.Wait(
        kind=KINDS[reported.cause],
        sentence=reported.sentence,
        hint=reported.hint,
        deployment_id=deployment.id,
        other_deployment_id=reported.other_deployment_id,
        piped_id=deployment.piped_id,
        position=reported.position,
        lock=reported.lock,
    )
    if reported.HasField("until"):
        wait.until.CopyFrom(reported.until)
    yield wait
    if reported.cause == QueuedDeployment.LOCK:
        for other in around.open:
            next_one = around.find_queued(other.id)
            is_loop = next_one is not None and next_one.cause == QueuedDeployment.LOCK
            if other.id == reported.other_deployment_id and not is_loop:
                yield from _find_own_waits(other, around)


def _find_planning_waits(deployment: model.Deployment, around: Surroundings) -> Iterator[pb.Wait]:
    if not around.online:
        return
    targets = deployment.deploy_targets_by_plugin
    waits = list(
        _find_plugin_waits(deployment, around, lambda name: not targets or name in targets)
    )
    if waits:
        yield from waits
    else:
        yield pb.Wait(
            kind=pb.Wait.PLANNING,
            sentence="its piped plans it: reads the commit, and asks the plugins how to deploy it",
            deployment_id=deployment.id,
            piped_id=deployment.piped_id,
        )


def _find_plugin_waits(
    deployment: model.Deployment, around: Surroundings, is_needed: Callable[[str], bool]
) -> Iterator[pb.Wait]:
    for name, plugin in sorted(around.plugins.items()):
        if plugin.state != push_pb2.PluginState.READY and is_needed(name):
            state = push_pb2.PluginState.State.Name(plugin.state).lower()
            yield pb.Wait(
                kind=pb.Wait.PLUGIN,
                sentence=f"the plugin {name!r} of its piped is {state}"
                + (f": {plugin.reason}" if plugin.reason else ""),
                hint="look at its last output, and into the log of the piped",
                deployment_id=deployment.id,
                plugin_name=name,
                piped_id=deployment.piped_id,
            )


def _describe_decision(deployment: model.Deployment, stage: model.PipelineStage) -> pb.Wait:
    return pb.Wait(
        kind=pb.Wait.DECISION,
        sentence=f"the stage {stage.name} failed: {deployment.status_reason}",
        hint="retry the stage, roll the deployment back, or cancel it",
        deployment_id=deployment.id,
        stage_id=stage.id,
    )


def _describe_approval(deployment: model.Deployment, stage: model.PipelineStage) -> pb.Wait:
    people = " or ".join(stage.authorized_operators)
    return pb.Wait(
        kind=pb.Wait.APPROVAL,
        sentence=f"the stage {stage.name} waits for an approval"
        + (f" by {people}" if people else ""),
        hint="approve it, or cancel the deployment",
        deployment_id=deployment.id,
        stage_id=stage.id,
    )
