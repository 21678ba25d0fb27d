# SPDX-License-Identifier: Apache-2.0
"""All services of the control plane, each gathered from its small objects."""

from collections.abc import Callable, Iterable

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


def endpoints(
    stores: Stores,
    shared: SharedState,
    leases: Leases,
    access: ProjectAccess,
    releases: Releases,
    telemetry: TelemetryApi,
    *,
    admit: Admit,
    now: Now,
    web_base_url: Callable[[], str],
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
    bus, presence = shared.bus, shared.presence
    served.add(
        pipedservice.DESCRIPTOR.services_by_name["PipedService"],
        AgentPipedsApi(stores, now, web_base_url, DuplicateAgents(stores.alarms, shared.sightings)),
        AgentApplicationsApi(stores),
        AgentDeploymentsApi(stores, now),
        AgentStagesApi(stores, now),
        AgentCommandsApi(stores, now),
        AgentEventsApi(stores, now),
        AgentLiveStateApi(stores, now),
    )
    served.add(
        apiservice.DESCRIPTOR.services_by_name["APIService"],
        ProgramPipedsApi(stores, now),
        ProgramApplicationsApi(stores, now),
        ProgramDeploymentsApi(stores),
        ProgramEventsApi(stores, presence, now, web_base_url),
    )
    served.add(
        webservice.DESCRIPTOR.services_by_name["WebService"],
        WebPipedsApi(stores, presence, now),
        WebReleasesApi(stores, releases),
        WebApplicationsApi(stores, now),
        WebApplicationListsApi(stores),
        WebDeploymentsApi(stores),
        WebProjectApi(access.settings, access.sso),
        WebAccountApi(stores, shared.key_uses, now),
        WebHistoryApi(stores),
        WebInsightsApi(stores, now),
    )
    served.add(
        push_pb2.DESCRIPTOR.services_by_name["PushService"],
        PushApi(
            stores,
            AgentWatch(stores, bus, presence, leases, shared.questions, shared.git_hints),
            leases,
            shared.questions,
            now,
        ),
    )
    v1 = api_pb2.DESCRIPTOR.services_by_name
    questions = AgentQuestions(
        stores=stores, presence=presence, questions=shared.questions, now=now
    )
    roll_backs = RollBacks(stores, questions)
    rights, histories = CallerRights(stores), ChangeHistories(bus)
    served.add(
        v1["DeploymentService"],
        V1DeploymentsApi(
            stores, bus, presence, roll_backs, DeploymentDiffs(stores, questions), rights, now
        ),
        unimplemented=unimplemented.DEPLOYMENT_SERVICE,
    )
    served.add(
        v1["ApplicationService"],
        V1ApplicationsApi(stores, presence, ResourceQuestions(stores, questions), roll_backs, now),
        unimplemented=unimplemented.APPLICATION_SERVICE,
    )
    served.add(v1["PipedService"], V1PipedsApi(stores, presence, now))
    served.add(v1["ProjectService"], V1ProjectApi(stores, bus, histories, rights))
    served.add(
        overview_pb2.DESCRIPTOR.services_by_name["OverviewService"],
        OverviewApi(stores, ApplicationIndexes(stores, histories), presence, rights, now),
    )
    served.add(SERVICE, telemetry)
    served.add(logs_pb2.DESCRIPTOR.services_by_name["StageLogService"], V1LogsApi(stores))
    v1 = access_pb2.DESCRIPTOR.services_by_name
    served.add(
        v1["AccessService"],
        SessionsApi(stores, now),
        RightsApi(rights, lambda: (each.method for each in served)),
    )
    served.add(v1["ApiKeyService"], ApiKeysApi(stores, shared.key_uses, now))
    served.add(chains_pb2.DESCRIPTOR.services_by_name["ChainService"], V1ChainsApi(stores))
    served.add(
        windows_pb2.DESCRIPTOR.services_by_name["WindowService"],
        V1WindowsApi(stores, presence, now),
    )
    served.add(
        repositories_pb2.DESCRIPTOR.services_by_name["RepositoryService"],
        V1RepositoriesApi(access.hooks, RepositoryHints(stores, shared.git_hints), web_base_url),
    )
    return served
