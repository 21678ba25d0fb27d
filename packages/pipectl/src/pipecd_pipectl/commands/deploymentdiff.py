# SPDX-License-Identifier: Apache-2.0
"""`pipectl deployment diff`: what a deployment changes against what ran before it."""

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.diffview import print_deployment_diff
from pipecd_pipectl.options import deployment_argument
from pipecd_pipectl.output import output_option, print_data, wants_data
from pipecd_pipectl.selection import read_deployment
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import call


@click.command()
@deployment_argument
@output_option
@use_client
async def diff(client: Client, *, name: str, deployment_id: str, latest: bool, output: str) -> None:
    """Show what a deployment changes against what ran before it.

    The piped of its application is asked now, for a deployment that is completed too: it has to be
    connected. Nothing of either commit is executed.
    """
    found = await read_deployment(client, name, deployment_id, latest=latest)
    request = pb.GetDeploymentDiffRequest(deployment_id=found.id)
    answer = await call(client.deployments.GetDeploymentDiff, request)
    if wants_data(output):
        print_data(answer, output)
    else:
        print_deployment_diff(found, answer.diff)
