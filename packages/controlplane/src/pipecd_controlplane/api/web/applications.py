# SPDX-License-Identifier: Apache-2.0
"""Applications, for people. A right that is limited to labels reaches only what has them."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, commands
from pipecd_model import command
from pipecd_model.secrets import seal
from pipecd_wire.model import application_pb2
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebApplicationsApi:
    """Register applications, change them, deploy them."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("AddApplication")
    async def add_application(
        self, caller: Person, request: pb.AddApplicationRequest
    ) -> pb.AddApplicationResponse:
        application_id = await applications.add(
            self._stores,
            caller.project_id,
            request,
            self._now,
            wanted_id=caller.request_id("AddApplication"),
        )
        return pb.AddApplicationResponse(application_id=application_id)

    @rpc("UpdateApplication")
    async def update_application(
        self, caller: Person, request: pb.UpdateApplicationRequest
    ) -> pb.UpdateApplicationResponse:
        await self._get(caller, request.application_id)
        await applications.move(
            self._stores,
            caller.project_id,
            request.application_id,
            piped_id=request.piped_id,
            platform_provider=request.platform_provider,
            config_filename=request.config_filename,
            deploy_targets=request.deploy_targets_by_plugin,
        )
        return pb.UpdateApplicationResponse()

    @rpc("EnableApplication")
    async def enable_application(
        self, caller: Person, request: pb.EnableApplicationRequest
    ) -> pb.EnableApplicationResponse:
        await self._switch(caller, request.application_id, disabled=False)
        return pb.EnableApplicationResponse()

    @rpc("DisableApplication")
    async def disable_application(
        self, caller: Person, request: pb.DisableApplicationRequest
    ) -> pb.DisableApplicationResponse:
        await self._switch(caller, request.application_id, disabled=True)
        return pb.DisableApplicationResponse()

    @rpc("DeleteApplication")
    async def delete_application(
        self, caller: Person, request: pb.DeleteApplicationRequest
    ) -> pb.DeleteApplicationResponse:
        await self._get(caller, request.application_id)
        await applications.delete(
            self._stores, caller.project_id, request.application_id, self._now
        )
        return pb.DeleteApplicationResponse()

    @rpc("SyncApplication")
    async def sync_application(
        self, caller: Person, request: pb.SyncApplicationRequest
    ) -> pb.SyncApplicationResponse:
        application = await self._get(caller, request.application_id)
        issued = await commands.issue(
            self._stores.commands,
            caller.project_id,
            caller.request_id("SyncApplication"),
            lambda at: command.sync(
                application, by=caller.name, at=at, strategy=request.sync_strategy
            ),
        )
        return pb.SyncApplicationResponse(command_id=issued.id)

    @rpc("GetApplication")
    async def get_application(
        self, caller: Person, request: pb.GetApplicationRequest
    ) -> pb.GetApplicationResponse:
        application = await self._get(caller, request.application_id)
        return pb.GetApplicationResponse(application=application)

    @rpc("GenerateApplicationSealedSecret")
    async def generate_sealed_secret(
        self, caller: Person, request: pb.GenerateApplicationSealedSecretRequest
    ) -> pb.GenerateApplicationSealedSecretResponse:
        piped = await self._stores.pipeds.get(caller.project_id, request.piped_id)
        closed = seal(piped, request.data, base64=request.base64_encoding)
        return pb.GenerateApplicationSealedSecretResponse(data=closed)

    async def _get(self, caller: Person, application_id: str) -> application_pb2.Application:
        application = await self._stores.applications.get(caller.project_id, application_id)
        caller.check("application", application_id, application.labels)
        return application

    async def _switch(self, caller: Person, application_id: str, *, disabled: bool) -> None:
        await self._get(caller, application_id)
        await applications.switch(
            self._stores, caller.project_id, application_id, disabled=disabled
        )
