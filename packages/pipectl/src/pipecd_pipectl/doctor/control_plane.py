# SPDX-License-Identifier: Apache-2.0
"""Asks a control plane how it and its agents are: credentials, agents, plugins, repositories."""

import posixpath
import re
import shlex
from collections.abc import Iterator
from typing import Final

from pipecd_model.errors import add_hint
from pipecd_pipectl.client import Client
from pipecd_pipectl.output import when
from pipecd_runtime.checkup import CheckRow, fail, ok, warn
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model.application_pb2 import INVALID_CONFIG, UNKNOWN, Application
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.pipecd.push.push_pb2 import PluginState
from pipecd_wire.rpc import CallError, call, explain_unreachable

PAGE: Final = 100
MOST_APPLICATIONS: Final = 2000
MOST_TROUBLED: Final = 10
"""Applications with trouble that get a row each."""

_SIMPLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

Agents = list[api_pb2.ListPipedsResponse.Item]


async def check_control_plane(client: Client, *, tls: bool) -> list[CheckRow]:
    """Returns what the control plane tells; the first row says whether it lets us in."""
    try:
        agents = list((await call(client.pipeds.ListPipeds, api_pb2.ListPipedsRequest())).pipeds)
    except CallError as error:
        return [_explain_refusal(error, tls=tls)]
    rows = [await _check_role(client)]
    rows += check_agents(agents)
    try:
        rows += check_applications(await _list_applications(client))
    except CallError as error:
        rows.append(warn("applications", f"cannot be listed: {error}", "pipectl application list"))
    return rows


def _explain_refusal(error: CallError, *, tls: bool) -> CheckRow:
    if trouble := explain_unreachable(error, tls=tls):
        step = trouble.hint or "look at the server's log"
        return fail("control plane", f"cannot be called: {trouble.cause}", step)
    if error.status == "UNAUTHENTICATED":
        step = "sign in with pipectl login, or give another key with --api-key-file"
        return fail("credentials", f"refused: {error.message}", step)
    if error.status == "PERMISSION_DENIED":
        text = f"accepted, but may not list agents: {error.message}"
        return fail("credentials", text, "ask an admin of the project for a role that may")
    if error.status == "UNIMPLEMENTED":
        text = "answers, but is of another make and does not tell of its agents"
        return warn("control plane", text, "look at its own console")
    return fail("control plane", f"answers with {error}", "look at the server's log")


async def _check_role(client: Client) -> CheckRow:
    """Only who may change things may ask for the open sessions."""
    try:
        answer = await call(client.access.ListSessions, access_pb2.ListSessionsRequest())
    except CallError as error:
        if error.status == "PERMISSION_DENIED":
            return ok("credentials", "accepted; they may read, and change nothing")
        return ok("credentials", "accepted")
    for session in answer.sessions:
        if session.id == answer.current_id:
            until = when(session.expires_at)
            return ok("credentials", f"signed in as {session.subject}, until {until}")
    return ok("credentials", "accepted; they may read and write")


def check_agents(agents: Agents) -> list[CheckRow]:
    """Returns a row for each agent, for its alarms, and for its plugins."""
    if not agents:
        step = "pipectl piped register --name NAME, and start piped with what it prints"
        return [fail("agents", "there is none, so nothing is deployed", step)]
    return [row for agent in agents for row in _check_agent(agent)]


def _check_agent(agent: api_pb2.ListPipedsResponse.Item) -> Iterator[CheckRow]:
    piped = agent.piped
    subject = f"agent {piped.name}"
    if piped.disabled:
        step = f"pipectl piped enable {_word(piped)}"
        yield warn(subject, "disabled: its calls are refused", step)
        return
    if piped.status != Piped.ONLINE:
        yield _explain_absence(subject, agent)
        return
    version = piped.version or "of unknown version"
    yield ok(subject, f"online, {version}, started {when(piped.started_at) or 'at unknown time'}")
    for alarm in agent.alarms:
        yield fail(subject, alarm, "stop one of them, or register another piped for it")
    if not piped.repositories:
        yield warn(subject, "watches no repository", "add repositories to the piped's file")
    yield from _check_plugins(agent)


def _explain_absence(subject: str, agent: api_pb2.ListPipedsResponse.Item) -> CheckRow:
    piped = agent.piped
    if not piped.started_at:
        step = "start piped with its id and key; `piped check` tells whether its file is right"
        return fail(subject, "registered, and never connected", step)
    # A control plane of an older version tells only when it was started.
    seen = when(agent.last_seen_at)
    text = f"offline, last seen {seen}" if seen else f"offline, started {when(piped.started_at)}"
    step = f"start it, look at its log, or: pipectl piped disable {_word(piped)}"
    return fail(subject, text, step)


def _check_plugins(agent: api_pb2.ListPipedsResponse.Item) -> Iterator[CheckRow]:
    piped = agent.piped
    if not agent.plugins and not piped.plugins and not piped.platform_providers:
        yield fail(f"agent {piped.name}", "has no plugin", "add plugins to the piped's file")
    restart = f"pipectl piped restart-plugin {_word(piped)} --plugin"
    for plugin in agent.plugins:
        subject = f"plugin {plugin.name} of {piped.name}"
        state = PluginState.State.Name(plugin.state).lower()
        version = f", {plugin.version}" if plugin.version else ""
        again = f", restarted {plugin.restarts} times" if plugin.restarts else ""
        if plugin.state == PluginState.READY:
            yield ok(subject, f"ready{version}{again}")
        elif plugin.state == PluginState.FAILED:
            text = add_hint(f"failed: {plugin.reason}", "; ".join(plugin.last_output[-1:]))
            yield fail(subject, text, f"{restart} {plugin.name}")
        else:
            text = f"{state}: {plugin.reason}" if plugin.reason else state
            yield warn(subject, text, "wait a moment; then look at piped's log")


def _word(piped: Piped) -> str:
    """Returns the name, which a person can read; the id where a shell would read the name anew."""
    return piped.name if _SIMPLE.fullmatch(piped.name) else piped.id


async def _list_applications(client: Client) -> list[Application]:
    found: list[Application] = []
    cursor = ""
    while len(found) < MOST_APPLICATIONS:
        request = api.ListApplicationsRequest(limit=PAGE, cursor=cursor)
        answer = await call(client.api.ListApplications, request)
        found += answer.applications
        cursor = answer.cursor
        if not cursor or not answer.applications:
            break
    return found


def check_applications(applications: list[Application]) -> list[CheckRow]:
    """Returns a row for each repository and application that an agent cannot use."""
    if not applications:
        step = "pipectl init writes an application's file, pipectl application add registers it"
        return [warn("applications", "there is none", step)]
    troubled = [each for each in applications if _is_troubled(each)]
    rows = []
    away: dict[tuple[str, str], list[Application]] = {}
    for each in troubled:
        if each.sync_state.status == INVALID_CONFIG:
            step = f"pipectl lint {_find_file(each)}"
            rows.append(fail(f"application {each.name}", _tell_trouble(each), step))
        else:
            key = (each.git_path.repo.id, _tell_trouble(each))
            away.setdefault(key, []).append(each)
    for (repository, text), used in away.items():
        names = ", ".join(each.name for each in used[:3]) + (", …" if len(used) > 3 else "")
        step = "check its address and credentials where piped runs: piped check"
        rows.append(fail(f"repository {repository}", f"{text} (for {names})", step))
    left = len(rows) - MOST_TROUBLED
    if left > 0:
        rows = rows[:MOST_TROUBLED]
        text = f"{left} more have trouble"
        rows.append(fail("applications", text, "pipectl application list"))
    well = len(applications) - len(troubled)
    return [*rows, ok("applications", f"{well} of {len(applications)} can be deployed")]


def _find_file(application: Application) -> str:
    path = posixpath.join(application.git_path.path, application.git_path.config_filename)
    return shlex.quote(path)


def _is_troubled(application: Application) -> bool:
    state = application.sync_state
    return state.status == INVALID_CONFIG or (
        state.status == UNKNOWN and bool(state.short_reason) and not application.disabled
    )


def _tell_trouble(application: Application) -> str:
    state = application.sync_state
    first = next(iter(state.reason.splitlines()), "")
    return f"{state.short_reason}: {first}" if first else state.short_reason
