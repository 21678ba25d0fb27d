# SPDX-License-Identifier: Apache-2.0
"""All services of the control plane, each gathered from its small objects."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pipecd_controlplane.api import unimplemented
from pipecd_controlplane.api.apiservice.applications import ProgramApplicationsApi
from pipecd_controlplane.api.apiservice.deployments import ProgramDeploymentsApi
from pipecd_controlplane.api.apiservice.events import ProgramEventsApi
from pipecd_controlplane.api.apiservice.pipeds import ProgramPipedsApi
from pipecd_controlplane.api.piped.applications import AgentApplicationsApi
from pipecd_controlplane.api.piped.commands import AgentCommandsApi
from pipecd_controlplane.api.piped.deployments import AgentDeploymentsApi
from pipecd_controlplane.api.piped.events import AgentEventsApi
from pipecd_controlplane.api.piped.live_state import AgentLiveStateApi
from pipecd_controlplane.api.piped.pipeds import AgentPipedsApi
from pipecd_controlplane.api.piped.stages import AgentStagesApi
from pipecd_controlplane.api.v1.access import ApiKeysApi, RightsApi, SessionsApi
from pipecd_controlplane.api.v1.applications import V1ApplicationsApi
from pipecd_controlplane.api.v1.chains import V1ChainsApi
from pipecd_controlplane.api.v1.deployments import V1DeploymentsApi
from pipecd_controlplane.api.v1.logs import V1LogsApi
from pipecd_controlplane.api.v1.overview import OverviewApi
from pipecd_controlplane.api.v1.pipeds import V1PipedsApi
from pipecd_controlplane.api.v1.project import V1ProjectApi
from pipecd_controlplane.api.v1.push import PushApi
from pipecd_controlplane.api.v1.repositories import V1RepositoriesApi
from pipecd_controlplane.api.v1.telemetry import SERVICE, TelemetryApi
from pipecd_controlplane.api.v1.windows import V1WindowsApi
from pipecd_controlplane.api.web.account import WebAccountApi
from pipecd_controlplane.api.web.application_lists import WebApplicationListsApi
from pipecd_controlplane.api.web.applications import WebApplicationsApi
from pipecd_controlplane.api.web.deployments import WebDeploymentsApi
from pipecd_controlplane.api.web.history import WebHistoryApi
from pipecd_controlplane.api.web.insights import WebInsightsApi
from pipecd_controlplane.api.web.pipeds import WebPipedsApi
from pipecd_controlplane.api.web.project import WebProjectApi
from pipecd_controlplane.api.web.releases import WebReleasesApi
from pipecd_controlplane.auth.rights import CallerRights
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.access import ProjectAccess
from pipecd_controlplane.usecases.agent_watch import AgentWatch
from pipecd_controlplane.usecases.application_index import ApplicationIndexes
from pipecd_controlplane.usecases.asking import AgentQuestions
from pipecd_controlplane.usecases.change_history import ChangeHistories
from pipecd_controlplane.usecases.deployment_diffs import DeploymentDiffs
from pipecd_controlplane.usecases.duplicate_agents import DuplicateAgents
from pipecd_controlplane.usecases.leases import Leases
from pipecd_controlplane.usecases.releases import Releases
from pipecd_controlplane.usecases.repository_hints import RepositoryHints
from pipecd_controlplane.usecases.resources import ResourceQuestions
from pipecd_controlplane.usecases.rollbacks import RollBacks
from pipecd_controlplane.usecases.shared_state import SharedState
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.pipecd.api import (
    access_pb2,
    api_pb2,
    chains_pb2,
    logs_pb2,
    overview_pb2,
    repositories_pb2,
    windows_pb2,
)
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import Admit, Endpoints, GuardStream, Observe, RunAudited
from pipecd_wire.webservice import service_pb2 as webservice


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """What services are made of."""

    stores: Stores
    shared: SharedState
    leases: Leases
    access: ProjectAccess
    releases: Releases
    telemetry: TelemetryApi
    now: Now
    web_base_url: Callable[[], str]


def endpoints(
    parts: ServiceParts,
    *,
    admit: Admit,
    observers: Iterable[Observe] = (),
    guard_stream: GuardStream | None = None,
    admit_late: Admit | None = None,
    run_audited: RunAudited | None = None,
) -> Endpoints:
    """Returns the endpoints of every RPC of every service, behind one authenticator."""
    served = Endpoints(
        admit=admit,
        observers=observers,
        guard_stream=guard_stream,
        admit_late=admit_late,
        run_audited=run_audited,
    )
    _add_upstream_services(served, parts)
    _add_agent_services(served, parts)
    _add_own_services(served, parts)
    _add_access_services(served, parts)
    return served


def _add_upstream_services(served: Endpoints, parts: ServiceParts) -> None:
    served.add(
        pipedservice.DESCRIPTOR.services_by_name["PipedService"],
        AgentPipedsApi(
            parts.stores,
            parts.now,
            parts.web_base_url,
            DuplicateAgents(parts.stores.alarms, parts.shared.sightings),
        ),
        AgentApplicationsApi(parts.stores),
        AgentDeploymentsApi(parts.stores, parts.now),
        AgentStagesApi(parts.stores, parts.now),
        AgentCommandsApi(parts.stores, parts.now),
        AgentEventsApi(parts.stores, parts.now),
        AgentLiveStateApi(parts.stores, parts.now),
    )
    served.add(
        apiservice.DESCRIPTOR.services_by_name["APIService"],
        ProgramPipedsApi(parts.stores, parts.now),
        ProgramApplicationsApi(parts.stores, parts.now),
        ProgramDeploymentsApi(parts.stores, parts.now),
        ProgramEventsApi(parts.stores, parts.shared.presence, parts.now, parts.web_base_url),
    )
    served.add(
        webservice.DESCRIPTOR.services_by_name["WebService"],
        WebPipedsApi(parts.stores, parts.shared.presence, parts.now),
        WebReleasesApi(parts.stores, parts.releases),
        WebApplicationsApi(parts.stores, parts.now),
        WebApplicationListsApi(parts.stores),
        WebDeploymentsApi(parts.stores),
        WebProjectApi(parts.access.settings, parts.access.sso),
        WebAccountApi(parts.stores, parts.shared.key_uses, parts.now),
        WebHistoryApi(parts.stores),
        WebInsightsApi(parts.stores, parts.now),
    )


def _add_agent_services(served: Endpoints, parts: ServiceParts) -> None:
    served.add(
        push_pb2.DESCRIPTOR.services_by_name["PushService"],
        PushApi(
            parts.stores,
            AgentWatch(
                parts.stores,
                parts.shared.bus,
                parts.shared.presence,
                parts.leases,
                parts.shared.questions,
                parts.shared.git_hints,
            ),
            parts.leases,
            parts.shared.questions,
            parts.now,
        ),
    )
    served.add(SERVICE, parts.telemetry)


def _add_own_services(served: Endpoints, parts: ServiceParts) -> None:
    v1 = api_pb2.DESCRIPTOR.services_by_name
    questions = AgentQuestions(
        stores=parts.stores,
        presence=parts.shared.presence,
        questions=parts.shared.questions,
        now=parts.now,
    )
    roll_backs = RollBacks(parts.stores, questions)
    rights, histories = CallerRights(parts.stores), ChangeHistories(parts.shared.bus)
    served.add(
        v1["DeploymentService"],
        V1DeploymentsApi(
            parts.stores,
            parts.shared.bus,
            parts.shared.presence,
            roll_backs,
            DeploymentDiffs(parts.stores, questions),
            rights,
            parts.now,
        ),
        unimplemented=unimplemented.DEPLOYMENT_SERVICE,
    )
    served.add(
        v1["ApplicationService"],
        V1ApplicationsApi(
            parts.stores,
            parts.shared.presence,
            ResourceQuestions(parts.stores, questions),
            roll_backs,
            parts.now,
        ),
        unimplemented=unimplemented.APPLICATION_SERVICE,
    )
    served.add(v1["PipedService"], V1PipedsApi(parts.stores, parts.shared.presence, parts.now))
    served.add(
        v1["ProjectService"], V1ProjectApi(parts.stores, parts.shared.bus, histories, rights)
    )
    served.add(
        overview_pb2.DESCRIPTOR.services_by_name["OverviewService"],
        OverviewApi(
            parts.stores,
            ApplicationIndexes(parts.stores, histories),
            parts.shared.presence,
            rights,
            parts.now,
        ),
    )
    served.add(logs_pb2.DESCRIPTOR.services_by_name["StageLogService"], V1LogsApi(parts.stores))


def _add_access_services(served: Endpoints, parts: ServiceParts) -> None:
    v1 = access_pb2.DESCRIPTOR.services_by_name
    served.add(
        v1["AccessService"],
        SessionsApi(parts.stores, parts.now),
        RightsApi(CallerRights(parts.stores), lambda: (each.method for each in served)),
    )
    served.add(v1["ApiKeyService"], ApiKeysApi(parts.stores, parts.shared.key_uses, parts.now))
    served.add(chains_pb2.DESCRIPTOR.services_by_name["ChainService"], V1ChainsApi(parts.stores))
    served.add(
        windows_pb2.DESCRIPTOR.services_by_name["WindowService"],
        V1WindowsApi(parts.stores, parts.shared.presence, parts.now),
    )
    served.add(
        repositories_pb2.DESCRIPTOR.services_by_name["RepositoryService"],
        V1RepositoriesApi(
            parts.access.hooks,
            RepositoryHints(parts.stores, parts.shared.git_hints),
            parts.web_base_url,
        ),
    )
