# SPDX-License-Identifier: Apache-2.0
"""Hold and pin: what deployments do to them, and what they keep from being deployed. Pure.

A hold is about the commit whose deployment failed: it is not deployed again by itself. A pin
follows a person's roll-back: nothing newer is deployed until a person releases it. Neither ever
stops a rollback, or a person who names what is to be deployed.
"""

from __future__ import annotations

from pipecd_model.errors import StateError
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.application_pb2 import (
    ApplicationDeploymentReference,
    ApplicationSyncState,
)
from pipecd_wire.pipecd.control import control_pb2 as pb

WAITING = "newer commits wait: "
"""How the line of a sync state begins that says which commit waits and for whom."""

COMMIT_WAITS = "a newer commit waits"
"""The short reason of a sync state that is out of sync for that alone."""

MOST_REASON = 500
"""Characters of a failure's reason that a hold repeats; the deployment has all of it."""

_ENDED_BADLY = frozenset({deployment_pb2.DEPLOYMENT_FAILURE, deployment_pb2.DEPLOYMENT_CANCELLED})


def apply_created(
    control: pb.ApplicationControl, deployment: deployment_pb2.Deployment
) -> pb.ApplicationControl | None:
    """Returns the control once a deployment was created; None when it stays as it is.

    A deployment of another commit ends the hold: the held one is history.
    """
    if not control.HasField("hold"):
        return None
    if control.hold.commit_hash == deployment.trigger.commit.hash:
        return None
    changed = _copy(control)
    changed.ClearField("hold")
    return changed


def apply_completed(
    control: pb.ApplicationControl,
    deployment: deployment_pb2.Deployment,
    record: pb.DeploymentRecord | None,
    newest: ApplicationDeploymentReference,
) -> pb.ApplicationControl | None:
    """Returns the control once a deployment was completed; None when it stays as it is.

    One that failed or was cancelled holds its commit, unless a newer one took its place, or waits
    already: `newest` is the application's last deployment. A success ends every hold.
    """
    changed = _copy(control)
    if deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS:
        changed.ClearField("hold")
    elif deployment.status in _ENDED_BADLY and not (
        (record and record.superseded_by) or _is_history(deployment, newest)
    ):
        changed.hold.Clear()
        changed.hold.commit_hash = deployment.trigger.commit.hash
        changed.hold.deployment_id = deployment.id
        changed.hold.reason = _shorten(deployment.status_reason)
        changed.hold.since.FromSeconds(deployment.completed_at)
    changed.application_id = deployment.application_id
    return None if changed == control or _is_empty(control, changed) else changed


def find_obstacle(control: pb.ApplicationControl, commit_hash: str) -> str:
    """Returns why a commit is not deployed by itself, as a sentence; empty when it may be.

    Asked by everything that deploys without a person: commits, drift, chains, restarts.
    """
    if control.HasField("pin"):
        return f"the commit {commit_hash[:7]} waits: {describe_pin(control.pin)}"
    if control.HasField("hold") and control.hold.commit_hash == commit_hash:
        return f"the commit {commit_hash[:7]} is held: its deployment failed"
    return ""


def check_sync(control: pb.ApplicationControl, application_name: str) -> None:
    """Raises StateError where a person's plain sync would undo a person's roll-back."""
    if control.HasField("pin"):
        raise StateError(
            f"the application {application_name!r} is pinned: {describe_pin(control.pin)}",
            hint="release it, which deploys the newest commit: `pipectl application release`",
        )


def describe_pin(pin: pb.Pin) -> str:
    """Returns who pinned an application to which commit, and why."""
    said = f", because: {pin.reason}" if pin.reason else ""
    return f"{pin.by or 'somebody'} rolled back to {pin.commit_hash[:7]}{said}"


def find_waiting(state: ApplicationSyncState) -> str:
    """Returns why a newer commit is not deployed, as a sync state says; empty when none waits."""
    line = state.reason.partition("\n")[0]
    return line.removeprefix(WAITING) if line.startswith(WAITING) else ""


def is_empty(control: pb.ApplicationControl) -> bool:
    """Returns whether nothing applies to an application."""
    return not (control.HasField("hold") or control.HasField("pin") or control.HasField("freeze"))


def _is_history(
    deployment: deployment_pb2.Deployment, newest: ApplicationDeploymentReference
) -> bool:
    """Whether a deployment of another commit was created after this one."""
    if newest.deployment_id in ("", deployment.id):
        return False
    return newest.trigger.commit.hash != deployment.trigger.commit.hash


def _is_empty(before: pb.ApplicationControl, after: pb.ApplicationControl) -> bool:
    return is_empty(before) and is_empty(after)


def _copy(control: pb.ApplicationControl) -> pb.ApplicationControl:
    copy = pb.ApplicationControl()
    copy.CopyFrom(control)
    return copy


def _shorten(reason: str) -> str:
    return reason if len(reason) <= MOST_REASON else f"{reason[: MOST_REASON - 1]}…"
