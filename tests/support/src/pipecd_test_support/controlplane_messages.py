# SPDX-License-Identifier: Apache-2.0
"""Builds messages that keep the rules of the protos; a test says only what it is about."""

from typing import Any

from pipecd_wire.model import (
    application_pb2,
    command_pb2,
    common_pb2,
    deployment_pb2,
    logblock_pb2,
    piped_pb2,
)
from pipecd_wire.pipedservice import service_pb2 as pipedservice


class MessageBuilder:
    """Messages that keep their rules; a test says only what it is about."""

    NOON = 1_700_000_000

    def git_path(self, path: str = "apps/hello") -> common_pb2.ApplicationGitPath:
        return common_pb2.ApplicationGitPath(
            repo=common_pb2.ApplicationGitRepository(id="repo"), path=path
        )

    def trigger(self, commit: str = "c0ffee") -> deployment_pb2.DeploymentTrigger:
        return deployment_pb2.DeploymentTrigger(
            commit=deployment_pb2.Commit(
                hash=commit, message="change", author="a", branch="main", created_at=self.NOON
            ),
            timestamp=self.NOON,
        )

    def piped(self, **fields: Any) -> piped_pb2.Piped:
        defaults = {"id": "piped", "name": "agent", "project_id": "ours"}
        times = {"created_at": self.NOON, "updated_at": self.NOON}
        return piped_pb2.Piped(**{**defaults, **times, **fields})

    def application(self, **fields: Any) -> application_pb2.Application:
        defaults = {
            "id": "app",
            "name": "hello",
            "piped_id": "piped",
            "project_id": "ours",
            "git_path": self.git_path(),
            "created_at": self.NOON,
            "updated_at": self.NOON,
        }
        return application_pb2.Application(**{**defaults, **fields})

    def stage(self, stage_id: str = "s1", **fields: Any) -> deployment_pb2.PipelineStage:
        defaults = {
            "id": stage_id,
            "name": "SCRIPT_RUN",
            "created_at": self.NOON,
            "updated_at": self.NOON,
        }
        return deployment_pb2.PipelineStage(**{**defaults, **fields})

    def deployment(self, **fields: Any) -> deployment_pb2.Deployment:
        defaults = {
            "id": "d1",
            "application_id": "app",
            "application_name": "hello",
            "piped_id": "piped",
            "project_id": "ours",
            "git_path": self.git_path(),
            "trigger": self.trigger(),
            "created_at": self.NOON,
            "updated_at": self.NOON,
        }
        return deployment_pb2.Deployment(**{**defaults, **fields})

    def command(self, **fields: Any) -> command_pb2.Command:
        defaults = {"id": "c1", "piped_id": "piped", "project_id": "ours", "commander": "me"}
        times = {"created_at": self.NOON, "updated_at": self.NOON}
        return command_pb2.Command(**{**defaults, **times, **fields})

    def blocks(self, *indexes: int) -> list[logblock_pb2.LogBlock]:
        return [
            logblock_pb2.LogBlock(index=index, log=f"line {index}", created_at=self.NOON)
            for index in indexes
        ]

    def planned(
        self, deployment_id: str, *stages: deployment_pb2.PipelineStage, **fields: Any
    ) -> pipedservice.ReportDeploymentPlannedRequest:
        return pipedservice.ReportDeploymentPlannedRequest(
            deployment_id=deployment_id, stages=stages, **fields
        )

    def stage_report(
        self,
        deployment_id: str,
        stage_id: str,
        status: deployment_pb2.StageStatus.ValueType,
        **fields: Any,
    ) -> pipedservice.ReportStageStatusChangedRequest:
        defaults = {"completed_at": self.NOON}
        return pipedservice.ReportStageStatusChangedRequest(
            deployment_id=deployment_id,
            stage_id=stage_id,
            status=status,
            **{**defaults, **fields},
        )
