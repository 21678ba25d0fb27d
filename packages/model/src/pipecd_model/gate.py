# SPDX-License-Identifier: Apache-2.0
"""Decides whether a deployment may begin, and whether its next stage may. Pure: no I/O.

The one place where emergency stop, freeze, pin and windows come together. A roll-back that a person
asked for passes whatever the rules say; a deployment with an override passes all but a pin, which a
person releases. The stages of a rollback never ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.windows import find_denial
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import (
    ApplicationControl,
    DeploymentRecord,
    EmergencyStop,
    ProjectRules,
    QueuedDeployment,
)

Cause = QueuedDeployment.Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """What a deployment waits for, as sentences for people."""

    cause: Cause.ValueType
    sentence: str
    hint: str = ""
    until: datetime | None = None
    """When it is over by itself; None when nobody knows."""
    other_deployment_id: str = ""
    lock: str = ""
    position: int = 0
    """How many come before it, for the same cause."""


def is_roll_back(record: DeploymentRecord) -> bool:
    """Returns whether a person brings an application back with the deployment of this record."""
    return record.type == DeploymentRecord.ROLL_BACK


def is_exempt(record: DeploymentRecord) -> bool:
    """Returns whether no rule stops the deployment of this record."""
    return is_roll_back(record) or record.HasField("override")


def find_blocker(
    deployment: Deployment,
    *,
    labels: Mapping[str, str],
    control: ApplicationControl,
    rules: ProjectRules,
    record: DeploymentRecord,
    now: datetime,
) -> Blocker | None:
    """Returns the rule because of which a deployment may not begin now; None when it may.

    Emergency stop, freeze, pin, windows: the first that applies. `now` has a time zone.
    """
    if is_roll_back(record):
        return None
    is_overridden = is_exempt(record)
    if rules.HasField("emergency_stop") and not is_overridden:
        return _describe_stop(rules.emergency_stop, "no deployment begins")
    if control.HasField("freeze") and not is_overridden:
        return _describe_freeze(control)
    if control.HasField("pin") and control.pin.deployment_id != deployment.id:
        return _describe_pin(control)  # an override does not release it
    if is_overridden:
        return None
    denial = find_denial(
        rules.windows, application_id=deployment.application_id, labels=labels, now=now
    )
    if denial is None:
        return None
    return Blocker(
        cause=QueuedDeployment.RULE,
        sentence=denial.sentence,
        hint="it begins by itself then; an override makes it begin now",
        until=denial.until,
    )


def find_pause(*, rules: ProjectRules, record: DeploymentRecord) -> Blocker | None:
    """Returns why a running deployment may not begin its next forward stage; None when it may."""
    if is_exempt(record) or not rules.HasField("emergency_stop"):
        return None
    return _describe_stop(rules.emergency_stop, "running deployments pause before their next stage")


def _describe_stop(stop: EmergencyStop, effect: str) -> Blocker:
    return Blocker(
        cause=QueuedDeployment.RULE,
        sentence=f"the emergency stop{_tell_who(stop.by, stop.since, stop.reason)}: {effect}",
        hint="lift the emergency stop; rollbacks are not stopped by it",
    )


def _describe_freeze(control: ApplicationControl) -> Blocker:
    freeze = control.freeze
    who = _tell_who(freeze.by, freeze.since, freeze.reason)
    return Blocker(
        cause=QueuedDeployment.RULE,
        sentence=f"the application is frozen{who}",
        hint="lift the freeze, or give this deployment an override",
    )


def _describe_pin(control: ApplicationControl) -> Blocker:
    pin = control.pin
    who = _tell_who(pin.by, pin.since, pin.reason)
    return Blocker(
        cause=QueuedDeployment.RULE,
        sentence=f"the application is pinned to {pin.commit_hash[:7]} after a roll-back{who}",
        hint="release the pin; then the newest commit is deployed",
        other_deployment_id=pin.deployment_id,
    )


def _tell_who(by: str, since: Timestamp, reason: str) -> str:
    when = f" since {since.ToDatetime():%Y-%m-%d %H:%M} UTC" if since.seconds else ""
    return f"{f' by {by}' if by else ''}{when}{f' ({reason})' if reason else ''}"
