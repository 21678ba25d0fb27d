# SPDX-License-Identifier: Apache-2.0
"""A deployment request, and the complete deployment message that is built from it. Pure.

Upstream's plugins and control planes validate the message and refuse one with missing fields.
"""

import uuid
from dataclasses import dataclass
from typing import Final

import msgspec

from pipecd_model.config import ApplicationConfig
from pipecd_wire.model import common_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import Command
from piped.git import Commit, Repository, commit_url

TRACE: Final = "Pipecd-Dev-Trace-Trigger-Commit-Hash"
"""Trailer of a commit that an event made: the commit of the other repository it goes back to."""

NOTIFICATION: Final = "DeploymentNotification"
"""Key in the shared metadata: the notification settings of the application."""

_OURS: Final = uuid.UUID("0f6cc9a5-0b0c-4b8e-9d0a-7d3b0d6a6f52")

_ASKED_FOR: Final = {
    common_pb2.QUICK_SYNC: "quick sync asked for by {}",
    common_pb2.PIPELINE: "pipeline sync asked for by {}",
}


def id_of_commit(application_id: str, last_deployment_id: str, commit: str) -> str:
    """Returns the id of the deployment that follows the last one because of a commit.

    The id is derived from its arguments: when a piped dies and is restarted, the same decision
    gives the same deployment.
    """
    return str(uuid.uuid5(_OURS, f"commit/{application_id}/{last_deployment_id}/{commit}"))


def id_of_command(command_id: str) -> str:
    """Returns the id of the deployment of a command, derived from it: there is only one."""
    return str(uuid.uuid5(_OURS, f"command/{command_id}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRequest:
    """A deployment that was decided on and is not created yet."""

    deployment_id: str
    application: Application
    config: ApplicationConfig
    head: Commit
    reason: str
    """Why it is requested, as a sentence."""
    command: Command | None = None


def build_deployment(
    request: DeploymentRequest, repository: Repository, *, now: int
) -> pb.Deployment:
    """Returns the pending deployment of the head for an application."""
    application, head = request.application, request.head
    deployment = pb.Deployment(
        id=request.deployment_id,
        application_id=application.id,
        application_name=application.name,
        piped_id=application.piped_id,
        project_id=application.project_id,
        kind=application.kind,
        git_path=application.git_path,
        cloud_provider=application.cloud_provider,
        platform_provider=application.platform_provider,
        labels=application.labels,
        trigger=_trigger(repository, head, now, request.command),
        status=pb.DEPLOYMENT_PENDING,
        status_reason=request.reason,
        deployment_trace_commit_hash=head.trailers.get(TRACE, ""),
        created_at=now,
        updated_at=now,
    )
    for plugin, targets in application.deploy_targets_by_plugin.items():
        deployment.deploy_targets_by_plugin[plugin].CopyFrom(targets)
    if request.config.notification is not None:
        told = msgspec.json.encode(request.config.notification).decode()
        deployment.metadata_v2.shared.keyValues[NOTIFICATION] = told
    return deployment


def _trigger(
    repository: Repository, head: Commit, now: int, command: Command | None
) -> pb.DeploymentTrigger:
    trigger = pb.DeploymentTrigger(
        commit=pb.Commit(
            hash=head.hash,
            message=head.subject or "(no message)",
            author=head.author,
            branch=repository.branch,
            url=commit_url(repository.remote, head.hash),
            created_at=head.created_at,
        ),
        timestamp=now,
        sync_strategy=common_pb2.AUTO,
    )
    if command is not None:
        strategy = command.sync_application.sync_strategy
        trigger.commander = command.commander
        trigger.sync_strategy = strategy
        if strategy in _ASKED_FOR:
            trigger.strategy_summary = _ASKED_FOR[strategy].format(command.commander or "somebody")
    return trigger
