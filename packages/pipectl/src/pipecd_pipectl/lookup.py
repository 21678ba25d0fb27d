# SPDX-License-Identifier: Apache-2.0
"""Finds what a person means: an application, deployment, piped or key by name, id or its start.

What could be several things is refused with a list of them: a guess could approve, cancel or
delete the wrong one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from pipecd_model.close_matches import find_close_matches
from pipecd_model.deployment import is_completed
from pipecd_model.errors import ConfigError, NotFoundError
from pipecd_pipectl.client import Client
from pipecd_pipectl.statuses import is_waiting_for_approval, status_name
from pipecd_pipectl.times import format_age
from pipecd_pipectl.typeable import format_typeable
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import apikey_pb2, application_pb2, deployment_pb2
from pipecd_wire.model.deployment_chain_pb2 import DeploymentChain
from pipecd_wire.pipecd.api import access_pb2, api_pb2, chains_pb2, repositories_pb2
from pipecd_wire.rpc import CallError, call

T = TypeVar("T")
Choose = Callable[[Sequence[deployment_pb2.Deployment]], deployment_pb2.Deployment]

WHOLE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
START_OF_ID: Final = re.compile(r"[0-9a-f][0-9a-f-]{3,34}", re.IGNORECASE)
PAGE: Final = 500
MOST_SEARCHED: Final = 5000
"""Deployments that are searched for the start of an id, the newest."""
RECENT: Final = 50
"""Deployments of an application among which one is chosen, the newest."""
MOST_LISTED: Final = 10
"""Candidates that a refusal lists."""


async def find_application(client: Client, text: str) -> application_pb2.Application:
    """Returns the application with this name, id or start of an id.

    Raises NotFoundError, or ConfigError with the candidates when there are several.
    """
    if WHOLE_ID.fullmatch(text):
        request = pb.GetApplicationRequest(application_id=text.lower())
        return (await call(client.api.GetApplication, request)).application
    named = await _list_named(client, text)
    if named:
        return _take_only(named, text, "applications", _describe_application)
    known = await list_all_applications(client)
    if START_OF_ID.fullmatch(text):
        found = [each for each in known if each.id.startswith(text.lower())]
        if found:
            return _take_only(found, text, "applications", _describe_application)
    raise _no_such("application", text, [each.name for each in known])


async def find_deployment(
    client: Client, text: str, choose: Choose | None = None
) -> deployment_pb2.Deployment:
    """Returns the deployment with this id or start of an id, or one of the application's.

    `choose` picks one of the application's deployments, which come newest first; the newest if it
    is not given. Raises NotFoundError, or ConfigError with the candidates when there are several.
    """
    if WHOLE_ID.fullmatch(text):
        return await _get_by_whole_id(client, text.lower(), choose)
    named = await _list_named(client, text)
    if named:
        application = _take_only(named, text, "applications", _describe_application)
        return await _choose_of(client, application, choose)
    if START_OF_ID.fullmatch(text):
        found = await _search_deployments(client, text.lower())
        if found:
            return _take_only(found, text, "deployments", describe_deployment)
    known = await list_all_applications(client)
    of_id = [each for each in known if START_OF_ID.fullmatch(text) and each.id.startswith(text)]
    if of_id:
        application = _take_only(of_id, text, "applications", _describe_application)
        return await _choose_of(client, application, choose)
    raise _no_such("application or deployment", text, [each.name for each in known])


async def find_newest_deployment(client: Client) -> deployment_pb2.Deployment:
    """Returns the newest deployment of the project. Raises NotFoundError."""
    page = await call(client.api.ListDeployments, pb.ListDeploymentsRequest(limit=1))
    if not page.deployments:
        raise NotFoundError(
            "the project has no deployment yet", hint="commit, or see `pipectl why`"
        )
    return page.deployments[0]


async def find_piped(client: Client, text: str) -> api_pb2.ListPipedsResponse.Item:
    """Returns the piped with this name, id or start of an id."""
    known = (await call(client.pipeds.ListPipeds, api_pb2.ListPipedsRequest())).pipeds
    found = (
        [each for each in known if each.piped.id == text.lower()]
        or [each for each in known if each.piped.name == text]
        or [
            each
            for each in known
            if START_OF_ID.fullmatch(text) and each.piped.id.startswith(text.lower())
        ]
    )
    if not found:
        raise _no_such("piped", text, [each.piped.name for each in known])
    return _take_only(found, text, "pipeds", lambda it: f"{it.piped.id} {it.piped.name}")


async def find_chain(client: Client, text: str) -> DeploymentChain:
    """Returns the chain with this id or start of an id, or the newest with this application.

    Raises NotFoundError, or ConfigError with the candidates when there are several.
    """
    if WHOLE_ID.fullmatch(text):
        request = chains_pb2.GetChainRequest(chain_id=text.lower())
        return (await call(client.chains.GetChain, request)).chain
    page = await call(client.chains.ListChains, chains_pb2.ListChainsRequest(limit=PAGE))
    names: list[str] = []
    for each in page.chains:
        members = [
            node.application_ref.application_name for block in each.blocks for node in block.nodes
        ]
        if text in members:
            return each
        names += members
    found = [
        each
        for each in page.chains
        if START_OF_ID.fullmatch(text) and each.id.startswith(text.lower())
    ]
    if not found:
        raise _no_such("chain", text, names)
    return _take_only(found, text, "chains", lambda it: it.id)


async def find_api_key(client: Client, text: str) -> apikey_pb2.APIKey:
    """Returns the API key with this name, id or start of an id, of those that are not disabled."""
    listed = (await call(client.api_keys.ListApiKeys, access_pb2.ListApiKeysRequest())).keys
    return _take_named([each.key for each in listed], text, "API key")


async def find_hook(client: Client, text: str) -> repositories_pb2.Hook:
    """Returns the hook with this name, id or start of an id."""
    request = repositories_pb2.ListHooksRequest()
    return _take_named((await call(client.repositories.ListHooks, request)).hooks, text, "hook")


class _Named(Protocol):
    """What has an id and a name."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _take_named(known: Iterable[N], text: str, noun: str) -> N:
    """Returns the one with this name, id or start of an id. Raises as `_take_only`."""
    known = list(known)
    found = (
        [each for each in known if each.id == text.lower()]
        or [each for each in known if each.name == text]
        or [
            each
            for each in known
            if START_OF_ID.fullmatch(text) and each.id.startswith(text.lower())
        ]
    )
    if not found:
        raise _no_such(noun, text, [each.name for each in known])
    return _take_only(found, text, f"{noun}s", lambda it: f"{it.id} {it.name}")


async def find_piped_name(client: Client, piped_id: str) -> str:
    """Returns the name of a piped; empty when there is none with this id, or nobody tells."""
    try:
        known = (await call(client.pipeds.ListPipeds, api_pb2.ListPipedsRequest())).pipeds
    except CallError as error:
        if error.status not in {"UNIMPLEMENTED", "PERMISSION_DENIED"}:
            raise
        return ""
    return next((each.piped.name for each in known if each.piped.id == piped_id), "")


async def list_all_applications(client: Client) -> list[application_pb2.Application]:
    """Returns all applications of the project that are not deleted, enabled or not."""
    return await _list_both(client, pb.ListApplicationsRequest())


async def list_open_deployments(
    client: Client, application_id: str
) -> list[deployment_pb2.Deployment]:
    """Returns the deployments of an application that are not completed, the oldest first."""
    recent = await list_recent_deployments(client, application_id)
    return [each for each in reversed(recent) if not is_completed(each.status)]


async def list_recent_deployments(
    client: Client, application_id: str, limit: int = RECENT
) -> list[deployment_pb2.Deployment]:
    """Returns the newest deployments of an application, the newest first."""
    request = pb.ListDeploymentsRequest(application_ids=[application_id], limit=limit)
    return list((await call(client.api.ListDeployments, request)).deployments)


def choose_started(found: Sequence[deployment_pb2.Deployment]) -> deployment_pb2.Deployment:
    """Returns the newest deployment that has begun: one in the queue has nothing to show."""
    begun = [each for each in found if each.status != deployment_pb2.DEPLOYMENT_PENDING]
    return (begun or list(found))[0]


def choose_waiting(found: Sequence[deployment_pb2.Deployment]) -> deployment_pb2.Deployment:
    """Returns the deployment of which a stage waits for approval; the newest if none does."""
    waiting = [each for each in found if any(map(is_waiting_for_approval, each.stages))]
    return (waiting or list(found))[0]


def choose_open(found: Sequence[deployment_pb2.Deployment]) -> deployment_pb2.Deployment:
    """Returns the one deployment that is not completed; the newest if none is open.

    Raises ConfigError when several are.
    """
    open_ones = [each for each in found if not is_completed(each.status)]
    if open_ones:
        return _take_only(open_ones, found[0].application_name, "deployments", describe_deployment)
    return found[0]


def describe_deployment(deployment: deployment_pb2.Deployment) -> str:
    """Returns a line that tells a deployment from others."""
    return (
        f"{deployment.id}  {deployment.application_name}  {status_name(deployment.status)}"
        f"  {format_age(deployment.created_at)}"
    )


def _describe_application(application: application_pb2.Application) -> str:
    path = f"{application.git_path.repo.id}:{application.git_path.path}"
    return f"{application.id}  {application.name}  {path}"


async def _list_named(client: Client, name: str) -> list[application_pb2.Application]:
    if not name.strip():
        raise ConfigError("the name is empty")
    found = await _list_both(client, pb.ListApplicationsRequest(name=name))
    return [each for each in found if each.name == name]


async def _list_both(
    client: Client, request: pb.ListApplicationsRequest
) -> list[application_pb2.Application]:
    """Returns the enabled applications and the disabled ones: one request is for one of both."""
    disabled = pb.ListApplicationsRequest()
    disabled.CopyFrom(request)
    disabled.disabled = True
    pages = [await _list_pages(client, each) for each in (request, disabled)]
    found = {each.id: each for page in pages for each in page if not each.deleted}
    return list(found.values())


async def _list_pages(
    client: Client, request: pb.ListApplicationsRequest
) -> list[application_pb2.Application]:
    request.limit = PAGE
    found: list[application_pb2.Application] = []
    while True:
        page = await call(client.api.ListApplications, request)
        found += page.applications
        if not page.cursor or page.cursor == request.cursor:
            return found
        request.cursor = page.cursor


async def _get_by_whole_id(
    client: Client, whole_id: str, choose: Choose | None
) -> deployment_pb2.Deployment:
    try:
        request = pb.GetDeploymentRequest(deployment_id=whole_id)
        return (await call(client.api.GetDeployment, request)).deployment
    except CallError as missing:
        if missing.status != "NOT_FOUND":
            raise
        try:
            application = await find_application(client, whole_id)
        except CallError:
            raise missing from None
    return await _choose_of(client, application, choose)


async def _choose_of(
    client: Client, application: application_pb2.Application, choose: Choose | None
) -> deployment_pb2.Deployment:
    recent = await list_recent_deployments(client, application.id)
    newest = application.most_recently_triggered_deployment.deployment_id
    # Times have seconds: of several deployments of one second, the application knows the last.
    recent.sort(key=lambda each: (each.created_at, each.id == newest), reverse=True)
    if not recent:
        raise NotFoundError(
            f"the application {application.name!r} has no deployment yet",
            hint=f"`pipectl why {format_typeable(application.name, application.id)}` says why",
        )
    return choose(recent) if choose else recent[0]


async def _search_deployments(client: Client, start: str) -> list[deployment_pb2.Deployment]:
    request = pb.ListDeploymentsRequest(limit=PAGE)
    found: list[deployment_pb2.Deployment] = []
    for _ in range(0, MOST_SEARCHED, PAGE):
        page = await call(client.api.ListDeployments, request)
        found += [each for each in page.deployments if each.id.startswith(start)]
        if not page.cursor:
            break
        request.cursor = page.cursor
    return found


def _take_only(found: Sequence[T], text: str, noun: str, describe: Callable[[T], str]) -> T:
    if len(found) == 1:
        return found[0]
    lines = [f"  {make_printable_line(describe(each))}" for each in found[:MOST_LISTED]]
    if len(found) > MOST_LISTED:
        lines.append(f"  … and {len(found) - MOST_LISTED} more")
    raise ConfigError(
        f"{text!r} can be any of {len(found)} {noun}; give the id of one:\n" + "\n".join(lines)
    )


def _no_such(noun: str, text: str, known: Iterable[str]) -> NotFoundError:
    near = find_close_matches(text, sorted(set(known)), most=3, cutoff=0.6)
    listing = noun if noun in {"piped", "chain"} else "application"
    hint = (
        f"did you mean {' or '.join(repr(each) for each in near)}?"
        if near
        else f"`pipectl {listing} list` shows what there is"
    )
    return NotFoundError(f"there is no {noun} {text!r}", hint=hint)
