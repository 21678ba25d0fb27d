# SPDX-License-Identifier: Apache-2.0
"""The thing that a command is about, from its argument or from the option with an id.

An id that is given with its option is used as it is: nothing is asked before the call itself.
"""

from dataclasses import dataclass

from pipecd_model.stage import format_stage_number
from pipecd_pipectl.client import Client
from pipecd_pipectl.lookup import (
    Choose,
    find_application,
    find_deployment,
    find_newest_deployment,
    find_piped,
)
from pipecd_pipectl.options import check_one_given
from pipecd_pipectl.typeable import SHORT_ID
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.rpc import call


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The id of a thing, and what to call it in a sentence."""

    id: str
    label: str
    stages: tuple[deployment_pb2.PipelineStage, ...] = ()
    """Of a deployment that was looked up."""

    def name_stage(self, stage_id: str) -> str:
        """Returns number and name of a stage; its id where the deployment was not looked up."""
        for stage in self.stages:
            if stage.id == stage_id:
                return f"{format_stage_number(stage)} {stage.name}"
        return stage_id


async def select_application(client: Client, name: str, app_id: str) -> Selected:
    """Returns the application that was named; one named by its option is not looked up."""
    check_one_given("application", name=name, app_id=app_id)
    if app_id:
        return Selected(id=app_id, label=app_id)
    found = await find_application(client, name)
    return Selected(id=found.id, label=found.name)


async def read_application(client: Client, name: str, app_id: str) -> application_pb2.Application:
    """Returns the application that was named, read from the control plane."""
    check_one_given("application", name=name, app_id=app_id)
    if not app_id:
        return await find_application(client, name)
    request = pb.GetApplicationRequest(application_id=app_id)
    return (await call(client.api.GetApplication, request)).application


async def select_deployment(
    client: Client,
    name: str,
    deployment_id: str,
    *,
    latest: bool,
    choose: Choose | None = None,
) -> Selected:
    """Returns the deployment that was named; one named by its option is not looked up."""
    check_one_given(
        "deployment", name=name, deployment_id=deployment_id, latest=latest and not name
    )
    if deployment_id:
        return Selected(id=deployment_id, label=deployment_id)
    found = await read_deployment(client, name, deployment_id, latest=latest, choose=choose)
    label = f"{found.id[:SHORT_ID]} of {found.application_name}"
    return Selected(id=found.id, label=label, stages=tuple(found.stages))


async def read_deployment(
    client: Client,
    name: str,
    deployment_id: str,
    *,
    latest: bool,
    choose: Choose | None = None,
) -> deployment_pb2.Deployment:
    """Returns the deployment that was named, read from the control plane.

    With an application's name, `latest` is its newest one whatever `choose` would say.
    """
    check_one_given(
        "deployment", name=name, deployment_id=deployment_id, latest=latest and not name
    )
    if name:
        return await find_deployment(client, name, None if latest else choose)
    if latest:
        return await find_newest_deployment(client)
    request = pb.GetDeploymentRequest(deployment_id=deployment_id)
    return (await call(client.api.GetDeployment, request)).deployment


async def select_piped(client: Client, name: str, piped_id: str) -> Selected:
    """Returns the piped that was named; one named by its option is not looked up."""
    check_one_given("piped", name=name, piped_id=piped_id)
    if piped_id:
        return Selected(id=piped_id, label=piped_id)
    found = (await find_piped(client, name)).piped
    return Selected(id=found.id, label=found.name)
