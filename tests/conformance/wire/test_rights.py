# SPDX-License-Identifier: Apache-2.0
"""Who may call: the rights of our protos are upstream's, and the two that upstream forgot."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import project_pb2, rbac_pb2
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import access_pb2 as access
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.plugin.deploymentapi import api_pb2 as deployment
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate
from pipecd_wire.plugin.planpreviewapi import api_pb2 as planpreview
from pipecd_wire.pluginservice import service_pb2 as plugin
from pipecd_wire.webservice import service_pb2 as web

TABLE = json.loads(Path(__file__).with_name("wire.json").read_text())["packages"]

CALLERS = {
    # Upstream's takes keys only: a person who is signed in with pipectl calls it, too.
    "grpc.service.apiservice.APIService": [rights_pb2.API_KEY, rights_pb2.SESSION],
    "grpc.service.pipedservice.PipedService": [rights_pb2.PIPED],
    "grpc.service.webservice.WebService": [rights_pb2.SESSION],
    "grpc.plugin.deploymentapi.v1alpha1.DeploymentService": [rights_pb2.AGENT],
    "grpc.plugin.livestateapi.v1alpha1.LivestateService": [rights_pb2.AGENT],
    "grpc.plugin.planpreviewapi.v1alpha1.PlanPreviewService": [rights_pb2.AGENT],
    "grpc.piped.service.PluginService": [rights_pb2.PLUGIN],
}
FILES = [api, piped, web, deployment, livestate, planpreview, plugin]

# The table has none for these, and upstream therefore denies them to everyone.
FORGOTTEN = {
    "ListDeploymentChains": "DEPLOYMENT_CHAIN:LIST",
    "GetDeploymentChain": "DEPLOYMENT_CHAIN:GET",
}
RBAC = {
    method: right or FORGOTTEN[method]
    for method, right in TABLE["grpc.service.webservice"]["rbac"].items()
}

READ_ONLY = {
    "GetApplication",
    "ListApplications",
    "GetDeployment",
    "ListDeployments",
    "ListStageLogs",
    "GetCommand",
    "GetPiped",
    "Encrypt",
}
READ_WRITE = {
    "AddApplication",
    "SyncApplication",
    "UpdateApplication",
    "DeleteApplication",
    "EnableApplication",
    "DisableApplication",
    "RenameApplicationConfigFile",
    "UpdateApplicationDeployTargets",
    "RegisterPiped",
    "UpdatePiped",
    "EnablePiped",
    "DisablePiped",
    "RegisterEvent",
    "RequestPlanPreview",
    "GetPlanPreviewResults",
}


def test_the_right_of_a_session_is_upstreams_extension() -> None:
    assert rbac_pb2.rbac.number == 59091
    assert rbac_pb2.rbac.containing_type == descriptor_pb2.MethodOptions.DESCRIPTOR


def test_every_service_of_the_table_has_its_kinds_of_caller() -> None:
    declared = {
        service.full_name: list(service.GetOptions().Extensions[rights_pb2.callers])
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
    }

    assert declared == CALLERS
    assert declared.keys() == {
        f"{package}.{service}" for package, held in TABLE.items() for service in held["services"]
    }


@pytest.mark.parametrize(("method", "right"), RBAC.items())
def test_an_rpc_of_the_web_service_needs_the_tables_right(method: str, right: str) -> None:
    rbac = method_of("grpc.service.webservice.WebService", method).GetOptions()

    assert said(rbac.Extensions[rbac_pb2.rbac]) == right


def test_every_rpc_of_the_web_service_is_in_the_table() -> None:
    service = web.DESCRIPTOR.services_by_name["WebService"]

    assert set(service.methods_by_name) == RBAC.keys()
    assert len(RBAC) == 51


def test_every_rpc_of_the_api_service_needs_its_role() -> None:
    service = api.DESCRIPTOR.services_by_name["APIService"]
    roles = {
        method.name: method.GetOptions().Extensions[rights_pb2.role] for method in service.methods
    }

    assert roles == dict.fromkeys(READ_ONLY, rights_pb2.READ_ONLY) | dict.fromkeys(
        READ_WRITE, rights_pb2.READ_WRITE
    )
    assert len(roles) == 23


# What the console may do with the same right; these have another name there, or none.
NOT_IN_THE_CONSOLE = {
    "RenameApplicationConfigFile": "APPLICATION:UPDATE",
    "UpdateApplicationDeployTargets": "APPLICATION:UPDATE",
    "RegisterEvent": "EVENT:CREATE",
    "RequestPlanPreview": "APPLICATION:UPDATE",
    "GetPlanPreviewResults": "APPLICATION:GET",
    "Encrypt": "APPLICATION:UPDATE",  # GenerateApplicationSealedSecret
    "ListStageLogs": "DEPLOYMENT:GET",  # GetStageLog
}


def test_a_session_needs_the_same_right_as_for_the_same_call_of_the_console() -> None:
    service = api.DESCRIPTOR.services_by_name["APIService"]
    consoles = web.DESCRIPTOR.services_by_name["WebService"].methods_by_name
    for method in service.methods:
        own = method.GetOptions()
        right = said(own.Extensions[rbac_pb2.rbac])
        assert right == NOT_IN_THE_CONSOLE.get(method.name, RBAC.get(method.name)), method.name
        if method.name not in NOT_IN_THE_CONSOLE:
            same = consoles[method.name].GetOptions()
            labels = rights_pb2.checks_labels
            assert own.Extensions[labels] == same.Extensions[labels], method.name


WITHOUT_LEASE = {
    "grpc.service.pipedservice.PipedService": {
        "ListApplications",
        "GetApplicationMostRecentDeployment",
        "GetDeployment",
        "ListNotCompletedDeployments",
        "ListUnhandledCommands",
        "GetLatestEvent",
        "ListEvents",
        "GetLatestAnalysisResult",
        "GetDesiredVersion",
        "InChainDeploymentPlannable",
        "GetApplicationSharedObject",
    },
    "pipecd.push.v1.PushService": {"Watch", "RenewLease", "ReleaseLease"},
}
CHECKS_LABELS = {
    "grpc.service.webservice.WebService": {
        "UpdateApplication",
        "EnableApplication",
        "DisableApplication",
        "DeleteApplication",
        "ListApplications",
        "SyncApplication",
        "GetApplication",
        "GetApplicationLiveState",
        "ListDeployments",
        "GetDeployment",
        "GetStageLog",
        "CancelDeployment",
        "SkipStage",
        "ApproveStage",
    },
    "grpc.service.apiservice.APIService": {
        "SyncApplication",
        "GetApplication",
        "ListApplications",
        "UpdateApplication",
        "DeleteApplication",
        "EnableApplication",
        "DisableApplication",
        "UpdateApplicationDeployTargets",
        "GetDeployment",
        "ListDeployments",
        "ListStageLogs",
    },
    "pipecd.api.v1.ApplicationService": {
        "SyncApplication",
        "GetLiveState",
        "OpenResource",
        "GetApplicationControl",
        "ListApplicationControls",
        "GetCommandOutcome",
        "ReleaseHold",
        "ReleasePin",
        "RollBackApplication",
        "SetFreeze",
    },
    "pipecd.api.v1.DeploymentService": {
        "ApproveStage",
        "SkipStage",
        "CancelDeployment",
        "WatchDeployment",
        "FollowStageLog",
        "ExplainWait",
        "ListQueue",
        "GetDeploymentDiff",
        "GetDeploymentRecord",
        "RetryStage",
        "RollBackDeployment",
    },
}

OWN_RIGHT = {
    "pipecd.api.v1.ApplicationService": {"OpenResource"},
    "pipecd.api.v1.DeploymentService": {"GetDeploymentDiff"},
}


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (rights_pb2.without_lease, WITHOUT_LEASE),
        (rights_pb2.checks_labels, CHECKS_LABELS),
        (rights_pb2.own_right, OWN_RIGHT),
    ],
    ids=["without_lease", "checks_labels", "own_right"],
)
def test_these_rpcs_and_no_others_are_marked(option: Any, expected: dict[str, set[str]]) -> None:
    """A further one gives a right to callers who did not have it."""
    marked: dict[str, set[str]] = {}
    for file in [*FILES, push, access, own]:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if method.GetOptions().Extensions[option]:
                    marked.setdefault(service.full_name, set()).add(method.name)

    assert marked == expected


def method_of(service: str, method: str) -> MethodDescriptor:
    return descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]


def said(right: rbac_pb2.RBAC) -> str:
    """A right in the table's words."""
    if right.ignored:
        return "ignored"
    resource = project_pb2.ProjectRBACResource.ResourceType.Name(right.resource)
    return f"{resource}:{project_pb2.ProjectRBACPolicy.Action.Name(right.action)}"
