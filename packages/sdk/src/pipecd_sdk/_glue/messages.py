# SPDX-License-Identifier: Apache-2.0
"""Converts the wire's messages to the SDK's values and back."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

from pipecd_sdk.application import read_section
from pipecd_sdk.context import (
    CommandKind,
    Commit,
    Deployment,
    Source,
    Sources,
    Stage,
    StageCommand,
)
from pipecd_sdk.plugin import PlannedStage, StagePlugin, Version
from pipecd_wire.model import command_pb2, common_pb2, deployment_pb2
from pipecd_wire.plugin.common import common_pb2 as source_pb2


def deployment_of(message: deployment_pb2.Deployment) -> Deployment:
    trigger, commit = message.trigger, message.trigger.commit
    return Deployment(
        id=message.id,
        application_id=message.application_id,
        application_name=message.application_name,
        project_id=message.project_id,
        piped_id=message.piped_id,
        commit=Commit(
            hash=commit.hash,
            message=commit.message,
            author=commit.author,
            branch=commit.branch,
            url=commit.url,
        ),
        created_at=datetime.fromtimestamp(message.created_at, UTC),
        commander=trigger.commander,
        repository_url=message.git_path.repo.remote,
        summary=message.summary,
        labels=dict(message.labels),
        running_commit=message.running_commit_hash,
    )


def stage_of(message: deployment_pb2.PipelineStage) -> Stage:
    return Stage(
        id=message.id,
        name=message.name,
        index=message.index,
        rollback=message.rollback,
        retried_count=message.retried_count,
    )


class WithSources(Protocol):
    """A request that brings the files of two commits."""

    @property
    def target_deployment_source(self) -> source_pb2.DeploymentSource: ...
    @property
    def running_deployment_source(self) -> source_pb2.DeploymentSource: ...
    def HasField(self, field_name: Any) -> bool: ...  # noqa: N802 - protobuf's name


class Reader:
    """Reads sources for one plugin: it knows what the plugin's part of the file looks like."""

    def __init__(self, plugin: StagePlugin, name: str) -> None:
        self._plugin = plugin
        self._name = name

    def sources(self, message: WithSources) -> Sources:
        running = None
        if message.HasField("running_deployment_source"):
            running = self.source(message.running_deployment_source)
        return Sources(target=self.source(message.target_deployment_source), running=running)

    def source(self, message: source_pb2.DeploymentSource) -> Source:
        return _source_of(message, self._make_reader(message))

    def _make_reader(self, message: source_pb2.DeploymentSource) -> Callable[[], Any]:
        if not self._plugin.has_application_config():
            return self._plugin.application_config
        return cache(
            lambda: read_section(
                self._plugin.application_config,
                message.application_config,
                plugin=self._name,
                file=message.application_config_filename,
            )
        )


def _source_of(message: source_pb2.DeploymentSource, read: Callable[[], Any]) -> Source:
    return Source(
        commit_hash=message.commit_hash,
        application_directory=message.application_directory,
        config_filename=message.application_config_filename,
        config=message.application_config,
        shared_config_directory=message.shared_config_directory,
        read_options=read,
    )


# The wire has more kinds of commands; those that are no stage's business are passed over.
_COMMANDS: Mapping[int, CommandKind] = {
    command_pb2.Command.APPROVE_STAGE: CommandKind.APPROVE,
    command_pb2.Command.SKIP_STAGE: CommandKind.SKIP,
}


def command_of(message: command_pb2.Command) -> StageCommand | None:
    kind = _COMMANDS.get(message.type)
    if kind is None:
        return None
    return StageCommand(id=message.id, kind=kind, commander=message.commander)


def to_stage(planned: PlannedStage) -> deployment_pb2.PipelineStage:
    """Returns a planned stage as a Go agent wants it: times set, no id, no status yet."""
    now = int(time.time())
    return deployment_pb2.PipelineStage(
        name=planned.name,
        desc=planned.desc,
        index=planned.index,
        rollback=planned.rollback,
        metadata=dict(planned.metadata),
        available_operation=deployment_pb2.ManualOperation.ValueType(planned.operation),
        authorized_operators=planned.operators,
        created_at=now,
        updated_at=now,
    )


def to_version(version: Version) -> common_pb2.ArtifactVersion:
    return common_pb2.ArtifactVersion(name=version.name, version=version.version, url=version.url)
