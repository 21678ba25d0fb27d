# SPDX-License-Identifier: Apache-2.0
"""What bench_store fills its databases with: a large project that is some years old."""

from collections.abc import Iterator

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_wire.model import (
    application_pb2,
    common_pb2,
    deployment_chain_pb2,
    deployment_trace_pb2,
    event_pb2,
    piped_pb2,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

APPLICATIONS = 10_000
PIPEDS = 500
PROJECT = "bench"
NOW = 1_760_000_000
STEP = 300
"""Seconds from one deployment, event, trace or record to the next."""

STATUSES = (pb.DEPLOYMENT_SUCCESS,) * 17 + (pb.DEPLOYMENT_FAILURE,) * 2 + (pb.DEPLOYMENT_CANCELLED,)


def application(number: int) -> application_pb2.Application:
    return application_pb2.Application(
        id=f"app-{number:05}",
        name=f"service-{number:05}",
        piped_id=f"piped-{number % 50}",
        project_id=PROJECT,
        git_path=common_pb2.ApplicationGitPath(path=f"apps/{number}"),
        labels={"env": ("dev", "prod")[number % 2], "team": f"team-{number % 500}"},
        created_at=NOW - number,
        updated_at=NOW,
    )


def deployment(number: int, count: int) -> pb.Deployment:
    at = NOW - (count - number) * STEP
    owner = number * 7919 % APPLICATIONS
    stages = [
        pb.PipelineStage(
            id=f"s{index}", name="SCRIPT_RUN", index=index, created_at=at, updated_at=at
        )
        for index in range(4)
    ]
    return pb.Deployment(
        id=f"dep-{number * 2654435761 % 2**32:010}-{number}",
        application_id=f"app-{owner:05}",
        application_name=f"service-{owner:05}",
        piped_id=f"piped-{owner % 50}",
        project_id=PROJECT,
        git_path=common_pb2.ApplicationGitPath(path=f"apps/{owner}"),
        labels={"env": ("dev", "prod")[owner % 2], "team": f"team-{owner % 500}"},
        trigger=pb.DeploymentTrigger(
            commit=pb.Commit(
                hash=f"{number:040x}", message="a change" * 4, author="somebody", created_at=at - 60
            ),
            timestamp=at,
        ),
        summary="deployed with the pipeline because a stage was configured",
        status=STATUSES[number % len(STATUSES)],
        stages=stages,
        completed_at=at + 120,
        created_at=at,
        updated_at=at + 120,
    )


def event(number: int, count: int) -> event_pb2.Event:
    at = NOW - (count - number) * STEP
    rare = number % 5000 == 0
    return event_pb2.Event(
        id=f"event-{number * 2654435761 % 2**32:010}-{number}",
        name=f"image-{number % 1000}",
        data=f"v{number}",
        event_key=f"key-{number % 1000}",
        project_id=PROJECT,
        labels={"env": ("dev", "prod")[number % 2], "team": "rare" if rare else "often"},
        status=event_pb2.EVENT_FAILURE if number % 100 == 0 else event_pb2.EVENT_SUCCESS,
        created_at=at,
        updated_at=at + 60,
    )


def trace(number: int, count: int) -> deployment_trace_pb2.DeploymentTrace:
    at = NOW - (count - number) * STEP
    return deployment_trace_pb2.DeploymentTrace(
        id=f"trace-{number * 2654435761 % 2**32:010}-{number}",
        project_id=PROJECT,
        title="a change",
        commit_hash=f"{number:040x}",
        commit_url=f"https://git.example/repository/commit/{number:040x}",
        author="somebody",
        created_at=at,
        updated_at=at + 60,
    )


def chain(number: int, count: int) -> deployment_chain_pb2.DeploymentChain:
    at = NOW - (count - number) * STEP
    return deployment_chain_pb2.DeploymentChain(
        id=f"chain-{number * 2654435761 % 2**32:010}-{number}",
        project_id=PROJECT,
        status=deployment_chain_pb2.DEPLOYMENT_CHAIN_SUCCESS,
        created_at=at,
        updated_at=at + 600,
    )


def piped(number: int) -> piped_pb2.Piped:
    return piped_pb2.Piped(
        id=f"piped-{number}", name=f"piped {number}", project_id=PROJECT, created_at=NOW - number
    )


def audit_records(count: int) -> Iterator[AuditRecord]:
    """Most of them are of one person; one person, one action and one subject have few."""
    for number in range(count):
        rare = number % (count // 4) == 0
        actor = "rare" if rare else ("ada" if number % 5 else f"person-{number % 500}")
        application = number * 7919 % APPLICATIONS
        yield AuditRecord(
            id=f"record-{number}",
            at=Timestamp(seconds=NOW - (count - number) * STEP),
            project_id=PROJECT,
            actor=actor,
            actor_kind=AuditRecord.PERSON,
            actor_id="SSO",
            address="192.0.2.7",
            action="RareAction" if rare else ("SyncApplication", "CancelDeployment")[number % 2],
            subject=f"app-{application:05}",
            subject_kind="application",
            subject_name=f"service-{application:05}",
            before='{"disabled": false}',
            after='{"disabled": true}',
            outcome="OK",
        )
