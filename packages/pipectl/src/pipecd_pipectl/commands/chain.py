# SPDX-License-Identifier: Apache-2.0
"""`pipectl chain …`: applications that are deployed one after the other."""

import time

import click

from pipecd_pipectl.chainview import is_over, print_chain, print_chains
from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.completions import complete_chains
from pipecd_pipectl.lookup import find_chain
from pipecd_pipectl.output import echo, is_wide, list_option, print_data, wants_data
from pipecd_pipectl.paging import list_pages, say_more
from pipecd_pipectl.queuetable import read_all_queued
from pipecd_wire.pipecd.api import chains_pb2 as pb


@click.group()
def chain() -> None:
    """Chains: applications that are deployed one after the other.

    `postSync.chain` in an application file begins one with each deployment. A block begins when all
    blocks before it have succeeded; one that fails or is cancelled ends the chain.
    """


@chain.command("list")
@click.option("--limit", default=30, show_default=True, help="How many at most; 0 is all.")
@click.option("--cursor", default="", help="Where the previous page ended.")
@list_option
@use_client
async def list_chains(client: Client, *, limit: int, cursor: str, output: str) -> None:
    """List chains, the newest first, and what each waits for or why it ended."""
    answer = pb.ListChainsResponse()
    request = pb.ListChainsRequest()
    async for page in list_pages(client.chains.ListChains, request, limit, cursor):
        answer.chains.extend(page.chains)
        answer.cursor = page.cursor
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in answer.chains:
            echo(each.id)
    elif answer.chains:
        queued = {} if all(map(is_over, answer.chains)) else await read_all_queued(client)
        print_chains(answer.chains, queued, wide=is_wide(output), now=time.time())
    else:
        echo("no chain; `postSync.chain` in an application file begins one", err=True)
    say_more(len(answer.chains), "chains", answer.cursor)


@chain.command()
@click.argument("name", metavar="CHAIN", shell_complete=complete_chains)
@list_option
@use_client
async def get(client: Client, *, name: str, output: str) -> None:
    """Show the blocks of a chain, their deployments, and what each waits for or why it ended.

    A chain is named by its id, the start of its id, or one of its applications: then it is the
    newest with that one.

    \b
    Example:
      pipectl chain get database
    """
    found = await find_chain(client, name)
    if wants_data(output):
        print_data(pb.GetChainResponse(chain=found), output)
    elif output == "name":
        echo(found.id)
    else:
        queued = {} if is_over(found) else await read_all_queued(client)
        print_chain(found, queued, wide=is_wide(output), now=time.time())
