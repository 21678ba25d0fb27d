# SPDX-License-Identifier: Apache-2.0
"""Windows, freezes and the emergency stop: what people say about when deployments may begin.

The rules themselves are `pipecd_model.gate` and `pipecd_model.windows`. Agents that watch obey them
by themselves; what upstream's create is judged by `new_deployments`.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, deployments, limits, stage_actions
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_controlplane.usecases.watching import check_watches
from pipecd_model import windows
from pipecd_model.deployment import is_completed
from pipecd_model.errors import ConfigError, NotFoundError, StateError
from pipecd_model.ids import new_id
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.pipecd.api import windows_pb2 as api
from pipecd_wire.pipecd.control import control_pb2 as pb

MOST_WINDOWS: Final = 200
"""Of one project: all of them are sent to every agent, and asked before every deployment."""

PREVIEWED: Final = timedelta(days=7)
MOST_PREVIEWED: Final = timedelta(days=92)


async def get_rules(stores: Stores, project_id: str) -> pb.ProjectRules:
    """Returns windows and emergency stop of a project; empty when there are none."""
    found = await stores.rules.find(project_id, project_id)
    return found.message if found is not None else pb.ProjectRules()


async def set_window(
    stores: Stores, requester: Requester, window: pb.Window, now: Now
) -> pb.Window:
    """Add a window, or replace the one of its name. Raises ConfigError when it cannot be used."""
    limits.text("name", window.name, limits.NAME)
    limits.text("reason", window.reason, limits.CONTEXT)
    limits.labels("labels", window.labels)
    windows.check_window(window)
    if window.application_id:
        await applications.get(stores, requester, window.application_id)
    kept = pb.Window()
    kept.CopyFrom(window)
    kept.created_by = requester.name
    kept.created_at.CopyFrom(Timestamp(seconds=now()))
    first_id = new_id()

    def edit(rules: pb.ProjectRules) -> None:
        others = [each for each in rules.windows if each.name != kept.name]
        replaced = [each.id for each in rules.windows if each.name == kept.name]
        if len(others) >= MOST_WINDOWS:
            raise StateError(f"a project has at most {MOST_WINDOWS} windows")
        kept.id = replaced[0] if replaced else first_id
        del rules.windows[:]
        rules.windows.extend(sorted([*others, kept], key=lambda each: each.name))

    await _change(stores, requester.project_id, edit)
    return kept


async def delete_window(stores: Stores, requester: Requester, name: str) -> None:
    """Delete a window by its name. Raises NotFoundError."""

    def edit(rules: pb.ProjectRules) -> None:
        others = [each for each in rules.windows if each.name != name]
        if len(others) == len(rules.windows):
            raise NotFoundError(f"there is no window {name!r}")
        del rules.windows[:]
        rules.windows.extend(others)

    await _change(stores, requester.project_id, edit)


async def stop_deployments(
    stores: Stores, requester: Requester, reason: str, now: Now
) -> pb.EmergencyStop:
    """Begin the emergency stop; one that is there already stays as it is."""
    limits.text("reason", reason, limits.CONTEXT)

    def edit(rules: pb.ProjectRules) -> None:
        if not rules.HasField("emergency_stop"):
            rules.emergency_stop.CopyFrom(
                pb.EmergencyStop(by=requester.name, reason=reason, since=Timestamp(seconds=now()))
            )

    changed = await _change(stores, requester.project_id, edit)
    return changed.emergency_stop


async def resume_deployments(stores: Stores, requester: Requester) -> None:
    """End the emergency stop, if there is one."""
    await _change(stores, requester.project_id, lambda rules: rules.ClearField("emergency_stop"))


async def _change(
    stores: Stores, project_id: str, edit: Callable[[pb.ProjectRules], None]
) -> pb.ProjectRules:
    changed = pb.ProjectRules()

    def apply(known: ReportedMessage[pb.ProjectRules] | None) -> pb.ProjectRules:
        changed.CopyFrom(known.message if known is not None else pb.ProjectRules())
        edit(changed)
        return changed

    async def work(transaction: Transaction) -> None:
        await stores.rules.change_in(transaction, project_id, project_id, apply)

    await stores.database.write(work)
    return changed


async def set_freeze(
    stores: Stores,
    requester: Requester,
    application_id: str,
    *,
    frozen: bool,
    reason: str,
    now: Now,
) -> Application:
    """Freeze an application, or lift its freeze. A freeze that is there stays as it is."""
    limits.text("reason", reason, limits.CONTEXT)
    application = await applications.get(stores, requester, application_id)

    def edit(known: ReportedMessage[pb.ApplicationControl] | None) -> pb.ApplicationControl | None:
        control = pb.ApplicationControl(application_id=application_id)
        if known is not None:
            control.CopyFrom(known.message)
        if control.HasField("freeze") == frozen:
            return None
        control.ClearField("freeze")
        if frozen:
            control.freeze.CopyFrom(
                pb.Freeze(by=requester.name, reason=reason, since=Timestamp(seconds=now()))
            )
        return control

    async def work(transaction: Transaction) -> None:
        await stores.controls.change_in(
            transaction,
            requester.project_id,
            application_id,
            edit,
            piped_id=application.piped_id,
        )

    await stores.database.write(work)
    return application


async def override(
    stores: Stores,
    presence: Presence,
    requester: Requester,
    request: api.OverrideRulesRequest,
    now: Now,
) -> pb.DeploymentRecord:
    """Let a deployment begin whatever the rules say.

    Raises StateError when it is completed, or when its agent knows of no overrides: what such a one
    may not begin is refused before it is a deployment.
    """
    reason = request.reason
    limits.text("reason", reason, limits.CONTEXT)
    deployment = await deployments.get(stores, requester, request.deployment_id)
    if is_completed(deployment.status):
        raise StateError("the deployment is completed already")
    application = await applications.get(stores, requester, deployment.application_id)
    await check_watches(stores, presence, application, "heed an override", now)
    at = Timestamp(seconds=now())
    kept = pb.DeploymentRecord()

    def edit(known: ReportedMessage[pb.DeploymentRecord] | None) -> pb.DeploymentRecord | None:
        record = pb.DeploymentRecord(
            deployment_id=deployment.id, application_id=deployment.application_id
        )
        if known is not None:
            record.CopyFrom(known.message)
        kept.CopyFrom(record)
        if record.HasField("override"):
            return None  # a repeat: the first reason stays
        record.override.CopyFrom(pb.Override(by=requester.name, reason=reason, at=at))
        record.actions.append(
            pb.StageAction(kind=pb.StageAction.OVERRIDDEN, by=requester.name, at=at, comment=reason)
        )
        del record.actions[: -stage_actions.MOST_ACTIONS]
        kept.CopyFrom(record)
        return record

    async def work(transaction: Transaction) -> None:
        await stores.records.change_in(
            transaction,
            requester.project_id,
            deployment.id,
            edit,
            piped_id=deployment.piped_id,
        )

    await stores.database.write(work)
    return kept


async def preview(
    stores: Stores, requester: Requester, request: api.PreviewWindowsRequest, now: Now
) -> list[windows.Span]:
    """Returns what the windows say of a time to come. Raises ConfigError."""
    labels = dict(request.labels)
    if request.application_id:
        application = await applications.get(stores, requester, request.application_id)
        labels = {**application.labels, **labels}
    start = _read_time(request.start if request.HasField("start") else Timestamp(seconds=now()))
    end = _read_time(request.end) if request.HasField("end") else start + PREVIEWED
    if not start < end <= start + MOST_PREVIEWED:
        raise ConfigError(
            f"invalid request: end: not between the start and {MOST_PREVIEWED.days} days after it"
        )
    rules = await get_rules(stores, requester.project_id)
    return windows.list_spans(
        rules.windows, application_id=request.application_id, labels=labels, start=start, end=end
    )


def _read_time(at: Timestamp) -> datetime:
    try:
        return at.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise ConfigError("invalid request: there is no such time") from None
