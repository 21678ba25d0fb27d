# SPDX-License-Identifier: Apache-2.0
"""`pipectl repository …`: git repositories that agents watch."""

from collections.abc import Sequence

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.output import echo, output_option, print_data, wants_data
from pipecd_pipectl.tables import Column, print_table
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.pipecd.api import repositories_pb2 as pb
from pipecd_wire.rpc import call


@click.group()
def repository() -> None:
    """Git repositories: have agents look at them now."""


@repository.command()
@click.argument("name", metavar="REPOSITORY")
@click.option("--branch", default="", help="Only agents that watch this branch; else their own.")
@click.option("--commit", default="", help="What was pushed; who has it already does nothing.")
@output_option
@use_client
async def hint(client: Client, *, name: str, branch: str, commit: str, output: str) -> None:
    """Have the agents that watch a repository ask git now, rather than at their next poll.

    REPOSITORY is an address in any of its forms, or an id from the agents' configuration. For a job
    of a CI system: a git host tells by itself with `pipectl hook add`.

    \b
    Examples:
      pipectl repository hint https://github.com/acme/shop
      pipectl repository hint git@github.com:acme/shop.git --branch main --commit "$GIT_COMMIT"
    """
    answer = await call(
        client.repositories.HintRepository,
        pb.HintRepositoryRequest(repository=name, branch=branch, commit_hash=commit),
    )
    if wants_data(output):
        print_data(answer, output)
    elif answer.repositories:
        _print_hinted(answer.repositories)
    else:
        of_branch = f" with the branch {make_printable_line(branch)}" if branch else ""
        echo(
            f"no agent watches {make_printable_line(name)}{of_branch};"
            " see repositories in: pipectl piped get PIPED",
            err=True,
        )


def _print_hinted(hinted: Sequence[pb.HintedRepository]) -> None:
    columns: list[Column[pb.HintedRepository]] = [
        Column(heading="PIPED", cell=lambda it: it.piped_name),
        Column(heading="REPOSITORY", cell=lambda it: it.repository_id),
        Column(heading="BRANCH", cell=lambda it: it.branch),
        Column(
            heading="STATE",
            cell=lambda it: "looks now" if it.told else "not connected, looks by itself",
        ),
    ]
    print_table(columns, hinted)
