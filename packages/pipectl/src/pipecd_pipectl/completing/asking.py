# SPDX-License-Identifier: Apache-2.0
"""Asks the control plane what can stand where the cursor is.

A person waits for it with a finger on TAB: the answer is there within half a second or it is empty,
and whatever goes wrong says nothing. Nothing is kept on disk: most of the time passes before the
control plane is asked, and a list that is seconds old hides what was just made.

Names come from repositories and from other people. One that a shell could read as anything but a
word is completed to the start of its id, and shown cleaned beside it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from pipecd_model.stage import format_stage_number
from pipecd_pipectl.client import Client, open_client, take_connection
from pipecd_pipectl.completions import Noun
from pipecd_pipectl.data import name_state
from pipecd_pipectl.lookup import START_OF_ID, choose_started
from pipecd_pipectl.paging import list_pages
from pipecd_pipectl.selection import read_deployment
from pipecd_pipectl.statuses import stage_status_name, status_name
from pipecd_pipectl.times import format_age
from pipecd_pipectl.typeable import PLAIN, SHORT_ID, format_typeable
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2, piped_pb2
from pipecd_wire.model.deployment_chain_pb2 import ChainStatus
from pipecd_wire.pipecd.api import access_pb2, api_pb2, chains_pb2
from pipecd_wire.rpc import call

LIMIT_SECONDS: Final = 0.5
LIMIT_VARIABLE: Final = "PIPECTL_COMPLETION_SECONDS"
"""Another limit, for a control plane that is far away."""
LONGEST_SECONDS: Final = 60.0
RECENT: Final = 100
"""Deployments whose ids are completed, the newest."""
LONGEST_HELP: Final = 60


class Thing(NamedTuple):
    """What can be named."""

    name: str
    """Empty where only the id counts."""
    id: str
    """Empty where only the name counts."""
    help: str = ""
    """What a shell may show beside it."""


class TypedLine(NamedTuple):
    """What was typed so far."""

    params: Mapping[str, Any]
    incomplete: str

    def get(self, name: str) -> str:
        """Returns an argument or option that was typed; empty without one."""
        return str(self.params.get(name) or "")


Lister = Callable[[Client, TypedLine], AsyncIterator[Thing]]


def ask(noun: Noun, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Returns what begins with `incomplete`; what came within the limit, and never an error."""
    found: list[Thing] = []
    # Behind an option without its value, click leaves the arguments in `ctx.args`.
    name = ctx.params.get("name") or next(iter(ctx.args), "")
    asked = TypedLine({**ctx.params, "name": name}, incomplete)
    with suppress(Exception):  # whatever it is, it must not stand in the prompt
        asyncio.run(_collect(LISTERS[noun], asked, found))
    return list(choose(found, incomplete))


def choose(found: Sequence[Thing], incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yields the things that begin with `incomplete`, each as it can be typed.

    It is the name, but the id of one whose name is not its own or no word for a shell, and where
    the start of the id was typed.
    """
    times = Counter(each.name for each in found)
    for each in found:
        value, shown = each.name, each.help
        if not value or (each.id and times[value] > 1):
            value, shown = each.id, each.name or each.help
        elif format_typeable(value, each.id) != value:
            value, shown = each.id[:SHORT_ID], each.name
        if incomplete and not value.startswith(incomplete):
            value, shown = each.id, each.name or each.help
        if value.startswith(incomplete) and PLAIN.fullmatch(value):
            help_text = make_printable_line(shown)[:LONGEST_HELP]
            yield CompletionItem(value, help=help_text or None)


def read_limit(text: str) -> float:
    """Returns the seconds that the control plane has for its answer; empty for the default."""
    try:
        given = float(text or LIMIT_SECONDS)
    except ValueError:
        return LIMIT_SECONDS
    return min(given, LONGEST_SECONDS) if given >= 0 else LIMIT_SECONDS  # nan is neither


async def _collect(lister: Lister, asked: TypedLine, found: list[Thing]) -> None:
    connection = take_connection(dict(asked.params))
    async with (
        asyncio.timeout(read_limit(os.environ.get(LIMIT_VARIABLE, ""))),
        open_client(connection) as client,
    ):
        async for thing in lister(client, asked):
            found.append(thing)  # noqa: PERF401 - what is there counts when time runs out


async def _list_applications(client: Client, _: TypedLine) -> AsyncIterator[Thing]:
    for disabled in (False, True):  # one request is for one of both
        request = pb.ListApplicationsRequest(disabled=disabled)
        async for page in list_pages(client.api.ListApplications, request, 0, ""):
            for each in page.applications:
                if not each.deleted:
                    folder = f"{each.git_path.repo.id}:{each.git_path.path}"
                    yield Thing(each.name, each.id, folder)


async def _list_application_ids(client: Client, asked: TypedLine) -> AsyncIterator[Thing]:
    async for each in _list_applications(client, asked):
        yield Thing("", each.id, each.name)


async def _list_deployments(client: Client, asked: TypedLine) -> AsyncIterator[Thing]:
    async for each in _list_applications(client, asked):
        yield each
    if START_OF_ID.fullmatch(asked.incomplete.ljust(SHORT_ID, "0")) and asked.incomplete:
        async for each in _list_deployment_ids(client, asked):
            yield each


async def _list_deployment_ids(client: Client, _: TypedLine) -> AsyncIterator[Thing]:
    page = await call(client.api.ListDeployments, pb.ListDeploymentsRequest(limit=RECENT))
    for each in page.deployments:
        status, age = status_name(each.status), format_age(each.created_at)
        yield Thing("", each.id, f"{each.application_name} {status} {age}")


async def _list_stages(client: Client, asked: TypedLine) -> AsyncIterator[Thing]:
    by_name: dict[str, str] = {}
    for each in await _read_stages(client, asked):
        number, status = format_stage_number(each), stage_status_name(each.status)
        if asked.incomplete:
            yield Thing(number, "", f"{each.name} {status}")
        by_name.setdefault(each.name, f"{number} {status}")
    for name, described in by_name.items():
        yield Thing(name, "", described)


async def _list_stage_ids(client: Client, asked: TypedLine) -> AsyncIterator[Thing]:
    for each in await _read_stages(client, asked):
        yield Thing("", each.id, f"{format_stage_number(each)} {each.name}")


async def _read_stages(client: Client, asked: TypedLine) -> list[deployment_pb2.PipelineStage]:
    found = await read_deployment(
        client,
        asked.get("name"),
        asked.get("deployment_id"),
        latest=bool(asked.params.get("latest")),
        choose=choose_started,
    )
    return list(found.stages)


async def _list_pipeds(client: Client, _: TypedLine) -> AsyncIterator[Thing]:
    for each in await _read_pipeds(client):
        yield Thing(each.name, each.id, each.desc)


async def _list_piped_ids(client: Client, _: TypedLine) -> AsyncIterator[Thing]:
    for each in await _read_pipeds(client):
        yield Thing("", each.id, each.name)


async def _list_plugins(client: Client, asked: TypedLine) -> AsyncIterator[Thing]:
    wanted = {asked.get("name"), asked.get("piped_id")} - {""}
    for each in await _read_pipeds(client):
        if wanted & {each.name, each.id}:
            for plugin in each.plugins:
                yield Thing(plugin.name, "")


async def _read_pipeds(client: Client) -> list[piped_pb2.Piped]:
    listed = await call(client.pipeds.ListPipeds, api_pb2.ListPipedsRequest())
    return [each.piped for each in listed.pipeds]


async def _list_api_keys(client: Client, _: TypedLine) -> AsyncIterator[Thing]:
    listed = await call(client.api_keys.ListApiKeys, access_pb2.ListApiKeysRequest())
    for each in listed.keys:
        yield Thing(each.key.name, each.key.id)


async def _list_chains(client: Client, _: TypedLine) -> AsyncIterator[Thing]:
    page = await call(client.chains.ListChains, chains_pb2.ListChainsRequest(limit=RECENT))
    named: set[str] = set()
    for each in page.chains:
        status, age = name_state(ChainStatus.DESCRIPTOR, each.status), format_age(each.created_at)
        yield Thing("", each.id, f"{status} {age}")
        for node in (node for block in each.blocks for node in block.nodes):
            name = node.application_ref.application_name
            if name not in named:
                named.add(name)
                yield Thing(name, "", f"{status} {age}")


LISTERS: Final[Mapping[Noun, Lister]] = {
    Noun.APPLICATION: _list_applications,
    Noun.APPLICATION_ID: _list_application_ids,
    Noun.DEPLOYMENT: _list_deployments,
    Noun.DEPLOYMENT_ID: _list_deployment_ids,
    Noun.STAGE: _list_stages,
    Noun.STAGE_ID: _list_stage_ids,
    Noun.PIPED: _list_pipeds,
    Noun.PIPED_ID: _list_piped_ids,
    Noun.PLUGIN: _list_plugins,
    Noun.API_KEY: _list_api_keys,
    Noun.CHAIN: _list_chains,
}
