# SPDX-License-Identifier: Apache-2.0
"""What an application or a deployment waits for, and the command that helps: plain decisions.

The first finding is what stands in the way now; the others follow from it, or come after it.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipecd_model.deployment import find_stage_to_decide, is_completed, rank_in_queue
from pipecd_model.holds import COMMIT_WAITS, find_waiting
from pipecd_model.stage import format_stage_number
from pipecd_pipectl.controlview import describe_pinned
from pipecd_pipectl.deploymentview import APPROVED_USERS, find_ahead, measure_stage
from pipecd_pipectl.statuses import (
    is_waiting_for_approval,
    list_running_stages,
    status_name,
)
from pipecd_pipectl.times import format_age, format_duration
from pipecd_pipectl.typeable import format_typeable
from pipecd_wire.model import application_pb2, piped_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl
from pipecd_wire.pipecd.push import push_pb2

OF_PIPED: Final = frozenset(
    {
        api_pb2.Wait.SLOT,
        api_pb2.Wait.PLANNING,
        api_pb2.Wait.LOCK,
        api_pb2.Wait.RULE,
        api_pb2.Wait.CHAIN,
    }
)
"""What only the control plane knows: what its piped has a deployment wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that stands in the way, or that is so, and the next command to type."""

    sentence: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that is known of an application."""

    application: application_pb2.Application
    piped: api_pb2.ListPipedsResponse.Item | None
    """None: nobody with its piped's id is registered."""
    open_deployments: Sequence[pb.Deployment] = ()
    """Those that are not completed, the oldest first."""
    last: pb.Deployment | None = None
    """The last one that is completed."""
    waits: Sequence[api_pb2.Wait] = ()
    """What the control plane says of the one whose turn it is."""
    control: ApplicationControl = field(default_factory=ApplicationControl)
    """Its hold and its pin."""
    now: float


def explain_application(situation: Situation) -> list[Cause]:
    """Returns what an application waits for, the most important first."""
    found = [*_explain_obstacles(situation), *_explain_queue(situation)]
    if not situation.open_deployments:
        found += _explain_rest(situation)
    return found


def explain_deployment(situation: Situation, deployment: pb.Deployment) -> list[Cause]:
    """Returns what a deployment waits for, or how it ended."""
    if is_completed(deployment.status):
        return [_explain_end(deployment, situation.now)]
    found = list(_explain_obstacles(situation))
    current = deployment
    while (ahead := find_ahead(current, situation.open_deployments)) is not None:
        found.append(_explain_waiting(current, ahead))
        current = ahead
    return [*found, *_explain_current(current, situation)]


def _explain_obstacles(situation: Situation) -> Iterator[Cause]:
    application, item = situation.application, situation.piped
    name = format_typeable(application.name, application.id)
    if application.disabled:
        yield Cause(
            sentence=f"the application {application.name} is disabled: nothing is deployed",
            command=f"pipectl application enable {name}",
        )
    if situation.control.HasField("pin"):
        waiting = find_waiting(application.sync_state)
        yield Cause(
            sentence=f"{describe_pinned(situation.control, situation.now)}; newer commits wait"
            " until it is released" + (f": {waiting.partition(':')[0]}" if waiting else ""),
            command=f"pipectl application release {name}",
        )
    if item is None:
        yield Cause(
            sentence=f"its piped {application.piped_id} is not registered any more",
            command=f"pipectl application update {name} --piped NAME",
        )
        return
    piped = item.piped
    agent = format_typeable(piped.name, piped.id)
    if piped.disabled:
        yield Cause(
            sentence=f"its piped {piped.name} is disabled",
            command=f"pipectl piped enable {agent}",
        )
    elif piped.status == piped_pb2.Piped.OFFLINE:
        started = f"; it was started {format_age(piped.started_at, situation.now)}"
        yield Cause(
            sentence=f"its piped {piped.name} is offline"
            + (started if piped.started_at else "; it has never been started"),
            command=f"start it where it runs, then: pipectl piped get {agent}",
        )
    for alarm in item.alarms:
        yield Cause(sentence=alarm, command=f"pipectl piped get {agent}")
    for plugin in item.plugins:
        if plugin.state != push_pb2.PluginState.READY:
            state = push_pb2.PluginState.State.Name(plugin.state).lower()
            yield Cause(
                sentence=f"the plugin {plugin.name} of {piped.name} is {state}: {plugin.reason}",
                command=f"pipectl piped restart-plugin {agent} --plugin {shlex.quote(plugin.name)}",
            )
    yield from _explain_sync_state(application)


def _explain_sync_state(application: application_pb2.Application) -> Iterator[Cause]:
    state = application.sync_state
    git = application.git_path
    if state.status == application_pb2.INVALID_CONFIG:
        yield Cause(
            sentence=state.reason or state.short_reason or "its application file cannot be used",
            command=f"correct {git.path}/{git.config_filename}, try `pipectl lint`, and commit",
        )
    elif state.status == application_pb2.UNKNOWN and state.short_reason:
        yield Cause(sentence=f"{state.short_reason}: {state.reason}")


def _explain_queue(situation: Situation) -> Iterator[Cause]:
    ordered = sorted(situation.open_deployments, key=rank_in_queue)
    for index, deployment in enumerate(ordered):
        if index == 0:
            yield from _explain_current(deployment, situation)
        else:
            yield _explain_waiting(deployment, ordered[index - 1])


def _explain_current(deployment: pb.Deployment, situation: Situation) -> Iterator[Cause]:
    """Yields what the first deployment of the queue does."""
    now = situation.now
    name = format_typeable(deployment.application_name, deployment.id)
    where = f"the deployment {_format_deployment(deployment)}"
    running = list_running_stages(deployment)
    for stage in running:
        passed = format_duration(measure_stage(deployment, stage, now) or 0)
        what = f"stage {format_stage_number(stage)} {stage.name} of {where}"
        if is_waiting_for_approval(stage):
            whom = ", ".join(stage.authorized_operators) or "anyone who may deploy"
            so_far = stage.metadata.get(APPROVED_USERS, "")
            yield Cause(
                sentence=f"{what} waits for approval by {whom}, for {passed}"
                + (f"; approved so far by {so_far}" if so_far else ""),
                command=f"pipectl deployment approve {name}",
            )
        else:
            yield Cause(
                sentence=f"{what} runs, for {passed}",
                command=f"pipectl deployment logs --follow {name}",
            )
    if not running and deployment.status == pb.DEPLOYMENT_PENDING:
        waited = format_age(deployment.created_at, now)
        reason = _join_waits(situation) or "its piped has not begun it yet"
        yield Cause(
            sentence=f"{where} was created {waited}: {reason}",
            command=f"pipectl deployment wait {deployment.id[:8]}",
        )
    elif find_stage_to_decide(deployment) is not None:
        yield Cause(
            sentence=f"{where} waits for you: {deployment.status_reason}",
            command=f"pipectl deployment retry {name}, or rollback, or cancel",
        )
    elif not running:
        reason = _join_waits(situation) or deployment.status_reason
        yield Cause(
            sentence=f"{where} is {status_name(deployment.status)}: {reason}",
            command=f"pipectl deployment logs --follow {name}",
        )


def _join_waits(situation: Situation) -> str:
    """Returns what the piped has the first deployment wait for, and what to do; empty: nothing."""
    known = [each for each in situation.waits if each.kind in OF_PIPED]
    return "; ".join(
        f"{each.sentence}{_count_ahead(each)}{f' ({each.hint})' if each.hint else ''}"
        for each in known
    )


def _count_ahead(wait: api_pb2.Wait) -> str:
    return f", {wait.position} before it" if wait.position else ""


def _explain_waiting(deployment: pb.Deployment, ahead: pb.Deployment) -> Cause:
    return Cause(
        sentence=f"the deployment {_format_deployment(deployment)} waits behind"
        f" {_format_deployment(ahead)}: an application has one deployment at a time",
        command=f"to let it pass: pipectl deployment cancel {ahead.id[:8]}",
    )


def _explain_end(deployment: pb.Deployment, now: float) -> Cause:
    ended = format_age(deployment.completed_at, now)
    reason = f": {deployment.status_reason}" if deployment.status_reason else ""
    command = ""
    if deployment.status != pb.DEPLOYMENT_SUCCESS:
        command = f"pipectl deployment logs {deployment.id[:8]}"
    return Cause(
        sentence=f"the deployment {_format_deployment(deployment)} ended as"
        f" {status_name(deployment.status)} {ended}{reason}",
        command=command,
    )


def _explain_rest(situation: Situation) -> Iterator[Cause]:
    """Yields how an application is that has no open deployment."""
    application, last = situation.application, situation.last
    name = format_typeable(application.name, application.id)
    if last is None:
        yield Cause(
            sentence=f"{application.name} has never been deployed, and no deployment is under way",
            command=f"pipectl application sync {name}",
        )
        return
    yield _explain_end(last, situation.now)
    if situation.control.HasField("hold"):
        commit = situation.control.hold.commit_hash[:7]
        yield Cause(
            sentence=f"the commit {commit} is held, so it is not deployed again by itself: commit a"
            " correction, or release it, which deploys it again",
            command=f"pipectl application release {name}",
        )
    elif last.status != pb.DEPLOYMENT_SUCCESS:
        yield Cause(
            sentence="this commit is not deployed again by itself: commit a correction,"
            " or start it by hand",
            command=f"pipectl application sync {name}",
        )
    state = application.sync_state
    if state.status == application_pb2.OUT_OF_SYNC and state.short_reason != COMMIT_WAITS:
        yield Cause(
            sentence=f"what runs differs from what was deployed: {state.short_reason}",
            command=f"pipectl application diff {name}",
        )


def _format_deployment(deployment: pb.Deployment) -> str:
    commit = deployment.trigger.commit
    return f"{deployment.id[:8]} (commit {commit.hash[:7]})"
