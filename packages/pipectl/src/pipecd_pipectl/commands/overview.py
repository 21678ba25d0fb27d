# SPDX-License-Identifier: Apache-2.0
"""`pipectl overview`: what is broken, what waits, what runs, what changed."""

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.output import output_option, print_data, wants_data
from pipecd_pipectl.overviewview import print_overview
from pipecd_wire.pipecd.api import overview_pb2 as pb
from pipecd_wire.rpc import call


@click.command()
@click.option("--limit", default=10, show_default=True, help="How many of each at most, up to 50.")
@output_option
@use_client
async def overview(client: Client, *, limit: int, output: str) -> None:
    """Say what is broken, what waits, what runs and what changed.

    \b
    Example:
      pipectl overview --limit 3
    """
    request = pb.GetOverviewRequest(most=limit)
    answer = await call(client.overview.GetOverview, request)
    if wants_data(output):
        print_data(answer, output)
    else:
        print_overview(answer)
