# SPDX-License-Identifier: Apache-2.0
"""`pipectl queue`: the deployments that wait for their turn, and what for."""

import time

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.completions import complete_pipeds
from pipecd_pipectl.lookup import find_piped
from pipecd_pipectl.output import echo, is_wide, list_option, print_data, wants_data
from pipecd_pipectl.queuetable import print_queue
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call


@click.command()
@click.option(
    "--piped",
    "piped_name",
    default="",
    help="Only those of this agent: its name, its id, or the start of its id.",
    shell_complete=complete_pipeds,
)
@list_option
@use_client
async def queue(client: Client, *, piped_name: str, output: str) -> None:
    """List what waits for its turn, and for what.

    For a place among those that run at once, for a lock, for another deployment of its application,
    or for a rule: a window, a freeze, a pin, an emergency stop. `pipectl why` says it of one.

    \b
    Example:
      pipectl queue --piped east
    """
    piped_id = (await find_piped(client, piped_name)).piped.id if piped_name else ""
    answer = await call(client.deployments.ListQueue, api_pb2.ListQueueRequest(piped_id=piped_id))
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in answer.items:
            echo(each.queued.deployment_id)
    elif answer.items:
        print_queue(answer.items, wide=is_wide(output), now=time.time())
    else:
        echo("nothing waits", err=True)
