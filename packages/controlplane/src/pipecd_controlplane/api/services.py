# SPDX-License-Identifier: Apache-2.0
"""All services of the control plane, each gathered from its small objects."""

from collections.abc import Callable, Iterable

from pipecd_controlplane.api import owed
from pipecd_controlplane.api.external.applications import ApplicationsApi
from pipecd_controlplane.api.external.deployments import DeploymentsApi
from pipecd_controlplane.api.external.events import EventsApi
from pipecd_controlplane.api.external.pipeds import PipedsApi
from pipecd_controlplane.api.own.access import ApiKeysApi, SessionsApi
from pipecd_controlplane.api.own.applications import ApplicationApi as OwnApplicationsApi
from pipecd_controlplane.api.own.deployments import DeploymentsApi as OwnDeploymentsApi
from pipecd_controlplane.api.own.pipeds import PipedsApi as OwnPipedsApi
from pipecd_controlplane.api.own.project import ProjectApi
from pipecd_controlplane.api.own.push import PushApi
from pipecd_controlplane.api.own.telemetry import SERVICE, TelemetryApi
from pipecd_controlplane.api.piped.applications import ApplicationsApi as PipedApplicationsApi
from pipecd_controlplane.api.piped.commands import CommandsApi as PipedCommandsApi
from pipecd_controlplane.api.piped.deployments import DeploymentsApi as PipedDeploymentsApi
from pipecd_controlplane.api.piped.events import EventsApi as PipedEventsApi
from pipecd_controlplane.api.piped.live_state import LiveStateApi as PipedLiveStateApi
from pipecd_controlplane.api.piped.pipeds import PipedsApi as PipedPipedsApi
from pipecd_controlplane.api.piped.stages import StagesApi as PipedStagesApi
from pipecd_controlplane.api.web.account import AccountApi as WebAccountApi
from pipecd_controlplane.api.web.application_lists import (
    ApplicationListsApi as WebApplicationListsApi,
)
from pipecd_controlplane.api.web.applications import ApplicationsApi as WebApplicationsApi
from pipecd_controlplane.api.web.deployments import DeploymentsApi as WebDeploymentsApi
from pipecd_controlplane.api.web.history import HistoryApi as WebHistoryApi
from pipecd_controlplane.api.web.insights import InsightsApi as WebInsightsApi
from pipecd_controlplane.api.web.pipeds import PipedsApi as WebPipedsApi
from pipecd_controlplane.api.web.project import ProjectApi as WebProjectApi
from pipecd_controlplane.api.web.releases import ReleasesApi as WebReleasesApi
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.access import Access
from pipecd_controlplane.usecases.agent_watch import AgentWatch, Presence
from pipecd_controlplane.usecases.bus import Bus
from pipecd_controlplane.usecases.leases import Leases
from pipecd_controlplane.usecases.releases import Releases
from pipecd_controlplane.usecases.sightings import Sightings
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import Admit, Endpoints, GuardStream, Observe
from pipecd_wire.webservice import service_pb2 as webservice


def endpoints(
    stores: Stores,
    bus: Bus,
    leases: Leases,
    access: Access,
    releases: Releases,
    telemetry: TelemetryApi,
    *,
    admit: Admit,
    now: Now,
    web_base_url: Callable[[], str],
    observers: Iterable[Observe] = (),
    guard_stream: GuardStream | None = None,
    admit_late: Admit | None = None,
) -> Endpoints:
    """Every RPC of every service, behind one door."""
    served = Endpoints(
        admit=admit, observers=observers, guard_stream=guard_stream, admit_late=admit_late
    )
    presence = Presence(bus)
    served.add(
        pipedservice.DESCRIPTOR.services_by_name["PipedService"],
        PipedPipedsApi(stores, now, web_base_url, Sightings(stores.alarms)),
        PipedApplicationsApi(stores),
        PipedDeploymentsApi(stores, now),
        PipedStagesApi(stores, now),
        PipedCommandsApi(stores),
        PipedEventsApi(stores, now),
        PipedLiveStateApi(stores, now),
    )
    served.add(
        apiservice.DESCRIPTOR.services_by_name["APIService"],
        PipedsApi(stores, now),
        ApplicationsApi(stores, now),
        DeploymentsApi(stores),
        EventsApi(stores, presence, now, web_base_url),
    )
    served.add(
        webservice.DESCRIPTOR.services_by_name["WebService"],
        WebPipedsApi(stores, presence, now),
        WebReleasesApi(stores, releases),
        WebApplicationsApi(stores, now),
        WebApplicationListsApi(stores),
        WebDeploymentsApi(stores),
        WebProjectApi(access.settings, access.sso),
        WebAccountApi(stores, access.uses, now),
        WebHistoryApi(stores),
        WebInsightsApi(stores, now),
    )
    served.add(
        push_pb2.DESCRIPTOR.services_by_name["PushService"],
        PushApi(stores, AgentWatch(stores, bus, presence, leases), leases),
    )
    own = api_pb2.DESCRIPTOR.services_by_name
    served.add(
        own["DeploymentService"],
        OwnDeploymentsApi(stores, bus),
        owed=owed.OWN_DEPLOYMENT_SERVICE,
    )
    served.add(
        own["ApplicationService"],
        OwnApplicationsApi(stores, now),
        owed=owed.OWN_APPLICATION_SERVICE,
    )
    served.add(own["PipedService"], OwnPipedsApi(stores, presence, now))
    served.add(own["ProjectService"], ProjectApi(bus), owed=owed.OWN_PROJECT_SERVICE)
    served.add(SERVICE, telemetry)
    own = access_pb2.DESCRIPTOR.services_by_name
    served.add(own["AccessService"], SessionsApi(stores, now))
    served.add(own["ApiKeyService"], ApiKeysApi(stores, access.uses, now))
    return served
