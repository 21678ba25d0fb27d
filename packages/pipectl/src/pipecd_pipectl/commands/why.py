# SPDX-License-Identifier: Apache-2.0
"""`pipectl why NAME`: what an application or a deployment waits for, and what to do."""

import time
from collections.abc import Sequence

import click

from pipecd_model.deployment import is_completed, rank_in_queue
from pipecd_model.errors import NotFoundError
from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.completions import complete_deployments
from pipecd_pipectl.controlview import read_control
from pipecd_pipectl.diagnosis import (
    Cause,
    Situation,
    explain_application,
    explain_deployment,
)
from pipecd_pipectl.lookup import find_application, find_deployment, list_recent_deployments
from pipecd_pipectl.output import echo, output_option, print_data, wants_data, wrap_text
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, call


@click.command()
@click.argument("name", metavar="APPLICATION|DEPLOYMENT", shell_complete=complete_deployments)
@output_option
@use_client
async def why(client: Client, *, name: str, output: str) -> None:
    """Say what an application waits for, and what to do.

    Or a deployment. It is named as elsewhere: by its name, its id, or the start of its id.

    \b
    Example:
      pipectl why hello
    """
    application, deployment = await _find(client, name)
    situation = await _read_situation(client, application)
    if deployment is None:
        findings = explain_application(situation)
    else:
        findings = explain_deployment(situation, deployment)
    if wants_data(output):
        _print_findings_as_data(situation, deployment, findings, output)
        return
    for finding in findings:
        echo(wrap_text(make_printable_line(finding.sentence), first="- "))
        if finding.command:
            echo(f"    {click.style(make_printable_line(finding.command), bold=True)}")


def _print_findings_as_data(
    situation: Situation,
    deployment: deployment_pb2.Deployment | None,
    findings: list[Cause],
    output: str,
) -> None:
    print_data(
        {
            "application": situation.application.name,
            "application_id": situation.application.id,
            "deployment_id": deployment.id if deployment else "",
            "findings": [{"sentence": each.sentence, "command": each.command} for each in findings],
        },
        output,
    )


async def _find(
    client: Client, name: str
) -> tuple[application_pb2.Application, deployment_pb2.Deployment | None]:
    """Returns the application that is meant, and its deployment if one is meant."""
    try:
        return await find_application(client, name), None
    except NotFoundError:
        deployment = await find_deployment(client, name)
    except CallError as error:
        if error.status != "NOT_FOUND":
            raise
        deployment = await find_deployment(client, name)
    request = pb.GetApplicationRequest(application_id=deployment.application_id)
    return (await call(client.api.GetApplication, request)).application, deployment


async def _read_situation(client: Client, application: application_pb2.Application) -> Situation:
    recent = await list_recent_deployments(client, application.id)
    pipeds = (await call(client.pipeds.ListPipeds, api_pb2.ListPipedsRequest())).pipeds
    completed = [each for each in recent if is_completed(each.status)]
    queue = sorted((it for it in recent if not is_completed(it.status)), key=rank_in_queue)
    return Situation(
        application=application,
        piped=next((each for each in pipeds if each.piped.id == application.piped_id), None),
        open_deployments=queue,
        control=await read_control(client, application.id),
        waits=await _explain_wait(client, queue[0].id) if queue else (),
        last=completed[0] if completed else None,
        now=time.time(),
    )


async def _explain_wait(client: Client, deployment_id: str) -> Sequence[api_pb2.Wait]:
    """Returns what the control plane says that a deployment waits for; upstream's says nothing."""
    try:
        request = api_pb2.ExplainWaitRequest(deployment_id=deployment_id)
        return (await call(client.deployments.ExplainWait, request)).waits_for
    except CallError as error:
        if error.status not in {"UNIMPLEMENTED", "NOT_FOUND"}:
            raise
        return ()
