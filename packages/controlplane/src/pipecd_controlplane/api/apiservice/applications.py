# SPDX-License-Identifier: Apache-2.0
"""Applications, by API key or session."""

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications
from pipecd_model.errors import ConfigError
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import common_pb2
from pipecd_wire.rpc import rpc


class ProgramApplicationsApi:
    """Register applications, change them, deploy them."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("AddApplication")
    async def add_application(
        self, caller: User, request: pb.AddApplicationRequest
    ) -> pb.AddApplicationResponse:
        new = applications.NewApplication(
            name=request.name,
            piped_id=request.piped_id,
            git_path=request.git_path,
            kind=request.kind,
            platform_provider=request.platform_provider,
            description=request.description,
            labels=request.labels,
        )
        application_id = await applications.add(self._stores, caller, new, self._now)
        return pb.AddApplicationResponse(application_id=application_id)

    @rpc("SyncApplication")
    async def sync_application(
        self, caller: User, request: pb.SyncApplicationRequest
    ) -> pb.SyncApplicationResponse:
        issued = await applications.sync(
            self._stores, caller, request.application_id, by=caller.commander
        )
        return pb.SyncApplicationResponse(command_id=issued.id)

    @rpc("GetApplication")
    async def get_application(
        self, caller: User, request: pb.GetApplicationRequest
    ) -> pb.GetApplicationResponse:
        application = await applications.get(self._stores, caller, request.application_id)
        return pb.GetApplicationResponse(application=application)

    @rpc("ListApplications")
    async def list_applications(
        self, caller: User, request: pb.ListApplicationsRequest
    ) -> pb.ListApplicationsResponse:
        wanted = ApplicationFilter(
            name=request.name,
            kinds=(kind_of(request.kind),) if request.kind else (),
            piped_id=request.piped_id,
            disabled=request.disabled,
            labels=dict(request.labels),
        )
        page = await self._stores.applications.page(
            caller.project_id, wanted, limit=request.limit, cursor=request.cursor
        )
        return pb.ListApplicationsResponse(
            applications=[each for each in page.items if caller.covers(each.labels)],
            cursor=page.cursor,
        )

    @rpc("UpdateApplication")
    async def update_application(
        self, caller: User, request: pb.UpdateApplicationRequest
    ) -> pb.UpdateApplicationResponse:
        await applications.move(
            self._stores,
            caller,
            request.application_id,
            piped_id=request.piped_id,
            platform_provider=request.platform_provider,
            config_filename=request.git_path.config_filename,
            deploy_targets={},
        )
        return pb.UpdateApplicationResponse(application_id=request.application_id)

    @rpc("DeleteApplication")
    async def delete_application(
        self, caller: User, request: pb.DeleteApplicationRequest
    ) -> pb.DeleteApplicationResponse:
        await applications.delete(self._stores, caller, request.application_id, self._now)
        return pb.DeleteApplicationResponse(application_id=request.application_id)

    @rpc("EnableApplication")
    async def enable_application(
        self, caller: User, request: pb.EnableApplicationRequest
    ) -> pb.EnableApplicationResponse:
        await applications.set_disabled(
            self._stores, caller, request.application_id, disabled=False
        )
        return pb.EnableApplicationResponse(application_id=request.application_id)

    @rpc("DisableApplication")
    async def disable_application(
        self, caller: User, request: pb.DisableApplicationRequest
    ) -> pb.DisableApplicationResponse:
        await applications.set_disabled(self._stores, caller, request.application_id, disabled=True)
        return pb.DisableApplicationResponse(application_id=request.application_id)

    @rpc("RenameApplicationConfigFile")
    async def rename_config_file(
        self, caller: User, request: pb.RenameApplicationConfigFileRequest
    ) -> pb.RenameApplicationConfigFileResponse:
        await applications.rename_config_file(
            self._stores, caller.project_id, request.application_ids, request.new_filename
        )
        return pb.RenameApplicationConfigFileResponse()

    @rpc("UpdateApplicationDeployTargets")
    async def update_deploy_targets(
        self, caller: User, request: pb.UpdateApplicationDeployTargetsRequest
    ) -> pb.UpdateApplicationDeployTargetsResponse:
        await applications.set_targets(
            self._stores,
            caller,
            request.application_id,
            request.deploy_targets_by_plugin,
        )
        return pb.UpdateApplicationDeployTargetsResponse()


def kind_of(name: str) -> int:
    """Returns the number of an application kind by name. Raises ConfigError for an unknown name."""
    try:
        return common_pb2.ApplicationKind.Value(name)
    except ValueError:
        known = ", ".join(common_pb2.ApplicationKind.keys())
        raise ConfigError(
            f"invalid request: kind: there is no kind {name!r}", hint=f"one of {known}"
        ) from None
